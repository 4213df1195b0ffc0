// Prints what arrives at a destination, until --count messages have come or Ctrl-C is pressed:
//     node subscriber.mjs --port 61613 --destination '/topic/*' --count 10

import { connect, options, subscribe } from './client.mjs'

const { destination, count, ...broker } = options({
  host: '127.0.0.1',
  port: 61613,
  destination: '/topic/demo',
  count: Infinity,
})

const client = await connect(broker)
let shown = 0
await subscribe(client, destination, message => {
  console.log(`${message.headers.destination}: ${message.body}`)
  shown += 1
  if (shown === count) client.deactivate()
})
console.log('subscribed')
process.once('SIGINT', () => client.deactivate())
