// Measures the time of a message through the broker to an echoing client, and back through the broker:
//     node latency_echo.mjs --port 61613 --count 1000
// The measured time includes that of both clients, far more than the broker's: compare with the load generator.

import { connect, options, subscribe } from './client.mjs'

const PING = '/topic/latency/ping'
const PONG = '/topic/latency/pong'

const { count, ...broker } = options({ host: '127.0.0.1', port: 61613, count: 1000 })

const echo = await connect(broker)
await subscribe(echo, PING, message => echo.publish({ destination: PONG, body: message.body }))

const meter = await connect(broker)
let arrived
await subscribe(meter, PONG, () => arrived())

/** Sends one message and waits for its answer; returns the time in microseconds. */
async function roundTrip(body) {
  const sent = performance.now()
  await new Promise(resolve => {
    arrived = resolve
    meter.publish({ destination: PING, body })
  })
  return (performance.now() - sent) * 1000
}

const times = []
for (let number = 0; number < count; number++) times.push(await roundTrip(String(number)))
times.sort((a, b) => a - b)
const at = part => `${times[Math.min(count - 1, Math.floor(part * count))].toFixed(0)} us`
console.log(`${count} round trips: p50 ${at(0.5)}, p90 ${at(0.9)}, p99 ${at(0.99)}, max ${at(1)}`)
await Promise.all([meter.deactivate(), echo.deactivate()])
