// Publishes numbered messages and waits until the broker has accepted all of them:
//     node publisher.mjs --port 61613 --destination /topic/demo --count 10

import { connect, options, receipt } from './client.mjs'

const { destination, count, ...broker } = options({
  host: '127.0.0.1',
  port: 61613,
  destination: '/topic/demo',
  count: 10,
})

const client = await connect(broker)
for (let number = 1; number < count; number++) client.publish({ destination, body: `message ${number}` })
// The RECEIPT of the last SEND also shows that all earlier ones were accepted.
await receipt(client, headers => client.publish({ destination, body: `message ${count}`, headers }))
console.log(`published ${count} messages to ${destination}`)
await client.deactivate()
