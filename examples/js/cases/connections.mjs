// Many connections that begin and end.

import { connect, subscribe } from '../client.mjs'
import { equal, newTopic, times } from './check.mjs'
import { TcpClient } from './tcp.mjs'

export const title = 'connections'

export const cases = {
  async '500 TCP connections receive one message'({ port }) {
    const destination = newTopic()
    const clients = await times(500, async () => {
      const client = await TcpClient.open(port)
      await client.receipt('SUBSCRIBE', { id: '1', destination })
      return client
    })
    const sender = await TcpClient.open(port)
    sender.send('SEND', { destination }, 'to all')
    for (const client of clients) equal((await client.next()).body.toString(), 'to all')
    await Promise.all([sender, ...clients].map(client => client.close()))
    return { deliveries: clients.length }
  },

  async '200 WebSocket connections, each with its own topic'({ host, port }) {
    const base = newTopic()
    await times(200, async number => {
      const client = await connect({ host, port })
      const destination = `${base}/${number}`
      let arrived
      const message = new Promise(resolve => (arrived = resolve))
      await subscribe(client, destination, arrived)
      client.publish({ destination, body: `only for ${number}` })
      equal((await message).body, `only for ${number}`)
      await client.deactivate()
    })
    return { deliveries: 200 }
  },

  async '500 connects and disconnects, one after the other'({ port }) {
    for (let number = 0; number < 500; number++) await (await TcpClient.open(port)).close()
  },

  async '200 connections that are reset do not disturb another'({ port }) {
    const destination = newTopic()
    const witness = await TcpClient.open(port)
    await witness.receipt('SUBSCRIBE', { id: '1', destination })
    await times(200, async number => {
      const client = await TcpClient.open(port)
      await client.receipt('SUBSCRIBE', { id: '1', destination: `${destination}/${number}` })
      client.socket.resetAndDestroy()
    })
    await witness.receipt('SEND', { destination: `${destination}/0` }, 'who is left?')
    witness.send('SEND', { destination }, 'still here')
    equal((await witness.next()).body.toString(), 'still here')
    await witness.close()
  },
}
