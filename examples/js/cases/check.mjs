// Shared by the cases.

/** Fails the case unless both are equal as JSON. */
export function equal(actual, expected) {
  const [a, e] = [JSON.stringify(actual), JSON.stringify(expected)]
  if (a !== e) throw new Error(`${a} instead of ${e}`)
}

let topics = 0

/** Returns a topic that no other case and no other run uses. */
export function newTopic() {
  return `/topic/all-in-one/${process.pid}-${topics++}`
}

/** Calls `act` with 0 to count-1, all at once. */
export function times(count, act) {
  return Promise.all(Array.from({ length: count }, (_, number) => act(number)))
}
