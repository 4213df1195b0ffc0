// Many messages: every subscriber checks that no message is lost, delivered twice or out of order. The printed rates
// are those of Node: the load generator in bench/ measures the broker.

import { connect, subscribe } from '../client.mjs'
import { equal, newTopic, times } from './check.mjs'
import { TcpClient } from './tcp.mjs'

export const title = 'load'

/** Waits for messages whose bodies count up from 0, in order. */
async function expectNumbers(client, count) {
  for (let number = 0; number < count; number++) {
    const { body } = await client.next()
    if (body.toString() !== String(number)) throw new Error(`${body} instead of ${number}`)
  }
}

export const cases = {
  async 'one publisher to 50 TCP subscribers'({ port }) {
    const destination = newTopic()
    const count = 2_000
    const subscribers = await times(50, async () => {
      const client = await TcpClient.open(port)
      await client.receipt('SUBSCRIBE', { id: '1', destination })
      return client
    })
    const publisher = await TcpClient.open(port)
    for (let number = 0; number < count; number++) publisher.send('SEND', { destination }, String(number))
    await Promise.all(subscribers.map(client => expectNumbers(client, count)))
    await Promise.all([publisher, ...subscribers].map(client => client.close()))
    return { deliveries: count * subscribers.length }
  },

  async 'one publisher to 20 WebSocket subscribers'({ host, port }) {
    const destination = newTopic()
    const count = 2_000
    const subscribers = await times(20, async () => {
      const client = await connect({ host, port })
      const bodies = []
      let complete
      const received = new Promise(resolve => (complete = resolve))
      await subscribe(client, destination, ({ body }) => {
        if (bodies.push(body) === count) complete(bodies)
      })
      return { client, received }
    })
    const publisher = await TcpClient.open(port)
    for (let number = 0; number < count; number++) publisher.send('SEND', { destination }, String(number))
    const expected = Array.from({ length: count }, (_, number) => String(number))
    for (const { received } of subscribers) equal(await received, expected)
    await Promise.all([publisher.close(), ...subscribers.map(({ client }) => client.deactivate())])
    return { deliveries: count * subscribers.length }
  },

  async '100 subscriptions on the connection that publishes'({ port }) {
    const destination = newTopic()
    const [count, subscriptions] = [500, 100]
    const client = await TcpClient.open(port)
    for (let id = 0; id < subscriptions; id++) await client.receipt('SUBSCRIBE', { id, destination })
    for (let number = 0; number < count; number++) client.send('SEND', { destination }, String(number))
    const expected = new Array(subscriptions).fill(0)
    for (let left = count * subscriptions; left > 0; left--) {
      const { headers, body } = await client.next()
      equal(body.toString(), String(expected[headers.subscription]++))
    }
    await client.close()
    return { deliveries: count * subscriptions }
  },

  async 'bodies of 1 MiB'({ port }) {
    const destination = newTopic()
    const [sender, receiver] = [await TcpClient.open(port), await TcpClient.open(port)]
    await receiver.receipt('SUBSCRIBE', { id: '1', destination })
    const body = Buffer.from(Uint8Array.from({ length: 1 << 20 }, (_, index) => index % 251))
    for (let number = 0; number < 20; number++) {
      sender.send('SEND', { destination, 'content-length': body.length }, body)
      equal((await receiver.next()).body.equals(body), true)
    }
    await Promise.all([sender.close(), receiver.close()])
    return { deliveries: 20 }
  },
}
