// The guarantees of STOMP, over TCP and WebSocket.

import { connect, receipt, subscribe } from '../client.mjs'
import { equal, newTopic } from './check.mjs'
import { TcpClient, encode } from './tcp.mjs'

export const title = 'protocol'

export const cases = {
  async 'the highest common version is used'({ port }) {
    for (const [offered, agreed] of [['1.0,1.1,1.2', '1.2'], ['1.1,1.0', '1.1'], ['1.2,9.9', '1.2']]) {
      const client = await TcpClient.open(port, { 'accept-version': offered, host: 'localhost' })
      equal([client.connected.command, client.connected.headers.version], ['CONNECTED', agreed])
      await client.close()
    }
  },

  async 'without a common version: ERROR, then the end'({ port }) {
    const client = await TcpClient.open(port, { 'accept-version': '3.0', host: 'localhost' })
    equal([client.connected.command, client.connected.headers.version], ['ERROR', '1.0,1.1,1.2'])
    equal(await client.next(), undefined)
  },

  async 'headers and bodies arrive unchanged'({ port }) {
    const client = await TcpClient.open(port)
    const destination = newTopic()
    await client.receipt('SUBSCRIBE', { id: 'a:b', destination })
    const body = Buffer.from(Uint8Array.from({ length: 512 }, (_, index) => index & 255))
    const own = { 'na:me': 'a\\b\r\nc:d', empty: '', 'content-length': body.length }
    client.send('SEND', { destination, ...own }, body)
    const message = await client.next()
    for (const [name, value] of Object.entries(own)) equal(message.headers[name], String(value))
    equal([message.headers.subscription, message.headers.destination], ['a:b', destination])
    equal(message.body.equals(body), true)
    await client.close()
  },

  async 'frames may be sent byte by byte, and many at once'({ port }) {
    const client = await TcpClient.open(port)
    const destination = newTopic()
    const bytes = encode('SUBSCRIBE', { id: '1', destination, receipt: 'slow' })
    for (let start = 0; start < bytes.length; start++) {
      await new Promise(resolve => client.socket.write(bytes.subarray(start, start + 1), resolve))
    }
    equal((await client.next()).headers['receipt-id'], 'slow')
    const frames = Array.from({ length: 1000 }, (_, number) => encode('SEND', { destination }, String(number)))
    client.socket.write(Buffer.concat(frames))
    for (let number = 0; number < 1000; number++) equal((await client.next()).body.toString(), String(number))
    await client.close()
  },

  async 'a transaction is atomic'({ port }) {
    const client = await TcpClient.open(port)
    const destination = newTopic()
    await client.receipt('SUBSCRIBE', { id: '1', destination })
    for (const end of ['ABORT', 'COMMIT']) {
      await client.receipt('BEGIN', { transaction: end })
      await client.receipt('SEND', { destination, transaction: end }, `sent before ${end}`)
      client.send(end, { transaction: end })
    }
    equal((await client.next()).body.toString(), 'sent before COMMIT')
    await client.close()
  },

  async 'no message comes after UNSUBSCRIBE'({ port }) {
    const client = await TcpClient.open(port)
    const destination = newTopic()
    await client.receipt('SUBSCRIBE', { id: '1', destination })
    await client.receipt('UNSUBSCRIBE', { id: '1' })
    await client.receipt('SEND', { destination }, 'no subscriber')
    await client.close()
  },

  async 'a pattern receives the names below it'({ port }) {
    const client = await TcpClient.open(port)
    const destination = newTopic()
    await client.receipt('SUBSCRIBE', { id: '1', destination: `${destination}/*` })
    for (const name of ['a', 'b/c']) client.send('SEND', { destination: `${destination}/${name}` })
    for (const name of ['a', 'b/c']) equal((await client.next()).headers.destination, `${destination}/${name}`)
    await client.close()
  },

  async 'an invalid frame gets an ERROR with a code, then the end'({ port }) {
    const client = await TcpClient.open(port)
    client.send('SEND', { receipt: 'never' }, 'no destination')
    const error = await client.next()
    equal([error.command, error.headers['receipt-id'], error.headers.code], ['ERROR', 'never', 'E-DEST-MISSING'])
    equal(await client.next(), undefined)
  },

  async 'TCP and WebSocket clients exchange messages'({ host, port }) {
    const [tcp, web] = [await TcpClient.open(port), await connect({ host, port })]
    const destination = newTopic()
    await tcp.receipt('SUBSCRIBE', { id: '1', destination: `${destination}/tcp` })
    await subscribe(web, `${destination}/web`, message => {
      web.publish({ destination: `${destination}/tcp`, body: `received: ${message.body}` })
    })
    tcp.send('SEND', { destination: `${destination}/web` }, 'Grüße, 世界')
    equal((await tcp.next()).body.toString(), 'received: Grüße, 世界')
    await receipt(web, headers => web.publish({ destination: newTopic(), headers }))
    await Promise.all([tcp.close(), web.deactivate()])
  },
}
