// What the cases share.

/** Fails the case unless both are equal as JSON. */
export function equal(actual, expected) {
  const [a, e] = [JSON.stringify(actual), JSON.stringify(expected)]
  if (a !== e) throw new Error(`${a} instead of ${e}`)
}

let topics = 0

/** A topic that no other case, and no other run, uses. */
export function newTopic() {
  return `/topic/all-in-one/${process.pid}-${topics++}`
}

/** Does `act` for 0…count-1, all at once. */
export function times(count, act) {
  return Promise.all(Array.from({ length: count }, (_, number) => act(number)))
}
