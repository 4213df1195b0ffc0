// Runs protocol, connection and load cases against a running broker:
//     node all_in_one.mjs --port 61613 [--only protocol|connections|load]
// Exits with 1 if a case failed.

import { options } from './client.mjs'
import * as connections from './cases/connections.mjs'
import * as load from './cases/load.mjs'
import * as protocol from './cases/protocol.mjs'

/** Milliseconds until a case counts as failed. */
const LIMIT_MS = 60_000

const { only, ...broker } = options({ host: '127.0.0.1', port: 61613, only: '' })

/** Returns the case's result; fails if it takes too long. */
function limited(running) {
  let timer
  const limit = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${LIMIT_MS} ms`)), LIMIT_MS)
  })
  return Promise.race([running, limit]).finally(() => clearTimeout(timer))
}

let [passed, failed] = [0, 0]
for (const { title, cases } of [protocol, connections, load]) {
  if (only && only !== title) continue
  console.log(title)
  for (const [name, run] of Object.entries(cases)) {
    const started = performance.now()
    try {
      const { deliveries } = (await limited(run(broker))) ?? {}
      const seconds = (performance.now() - started) / 1000
      const rate = deliveries ? `, ${Math.round(deliveries / seconds)} deliveries/s` : ''
      console.log(`  ok    ${name} (${seconds.toFixed(2)} s${rate})`)
      passed += 1
    } catch (error) {
      console.log(`  FAIL  ${name}\n        ${error.stack}`)
      failed += 1
    }
  }
}
console.log(`${passed} passed, ${failed} failed`)
process.exit(failed === 0 && passed > 0 ? 0 : 1)
