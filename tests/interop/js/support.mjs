// Shared by the client programs: waiting with a timeout, and running scenarios by name.

/** Milliseconds until an awaited event counts as missing. */
export const TIMEOUT_MS = 30_000

/** Milliseconds between heart-beats, both ways. */
export const BEAT_MS = 1000

/** Fails the scenario with the message `what` unless `condition` holds. */
export function check(condition, what) {
  if (!condition) throw new Error(what)
}

/** Fails the scenario unless both are equal as JSON. */
export function equal(actual, expected) {
  const [a, e] = [JSON.stringify(actual), JSON.stringify(expected)]
  check(a === e, `${a} instead of ${e}`)
}

/** Returns `promise`, which fails with the name `what` if it takes too long. */
export function within(promise, what, ms = TIMEOUT_MS) {
  let timer
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no ${what} within ${ms} ms`)), ms)
  })
  return Promise.race([promise, limit]).finally(() => clearTimeout(timer))
}

/** A queue of events: `put` adds one, `next` waits for the next one, `fail` ends all waiting with an error. */
export class Inbox {
  #items = []
  #waiting = []
  #error

  constructor(what) {
    this.what = what
  }

  get isEmpty() {
    return this.#items.length === 0
  }

  put(item) {
    const waiting = this.#waiting.shift()
    if (waiting) waiting.resolve(item)
    else this.#items.push(item)
  }

  fail(error) {
    this.#error = error
    for (const waiting of this.#waiting.splice(0)) waiting.reject(error)
  }

  next() {
    if (!this.isEmpty) return Promise.resolve(this.#items.shift())
    if (this.#error) return Promise.reject(this.#error)
    return within(new Promise((resolve, reject) => this.#waiting.push({ resolve, reject })), this.what)
  }
}

let topics = 0

/** Returns a topic that no other scenario, program or page uses. */
export function newTopic() {
  return `/topic/js-${Date.now().toString(36)}-${Math.random().toString(36).slice(2)}-${topics++}`
}

/** Returns a queue that no other scenario, program or page uses. */
export function newQueue() {
  return newTopic().replace('/topic/', '/queue/')
}

/**
  * The second of three messages is acknowledged, then the client disconnects: what is left for the next client, by
  * version and ack mode. 1.0 has no `client-individual`.
 */
export const ACKS = [
  ['1.0', 'client', ['3']],
  ['1.1', 'client', ['3']],
  ['1.2', 'client', ['3']],
  ['1.1', 'client-individual', ['1', '3']],
  ['1.2', 'client-individual', ['1', '3']],
]

/**
  * Runs the scenarios that follow the broker's port on the command line, each called with the port; `find` returns the
  * scenario of a name. Prints `PASS name` for each, stops at the first failure and returns the exit status.
 */
export async function main(find) {
  const [port, ...names] = process.argv.slice(2)
  for (const name of names) {
    try {
      const scenario = find(name)
      check(scenario, 'no such scenario')
      await scenario(Number(port))
    } catch (error) {
      console.error(`FAIL ${name}: ${error.stack ?? error}`)
      return 1
    }
    console.log(`PASS ${name}`)
  }
  return 0
}
