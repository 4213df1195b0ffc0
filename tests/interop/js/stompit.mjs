// stompit over TCP: `node stompit.mjs PORT SCENARIO…`

import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import stompit from 'stompit'
import { ACKS, BEAT_MS, Inbox, check, equal, main, newQueue, newTopic, within } from './support.mjs'

/** A connected client with promises for the library's callbacks. */
class Session {
  messages = new Inbox('MESSAGE')
  errors = new Inbox('end by ERROR')

  static async open(port, connectHeaders = {}) {
    const session = new Session()
    // The library destroys the connection of a server that is later than this margin; a busy machine may be late.
    const options = { host: '127.0.0.1', port, connectHeaders, heartbeatDelayMargin: BEAT_MS }
    session.client = await within(promisify(stompit.connect)(options), 'CONNECTED')
    session.client.on('error', error => session.errors.put(error))
    return session
  }

  /** Sends a frame and waits for its RECEIPT; `start(options)` begins it and returns the stream of its body, if any. */
  receipt(start) {
    return within(new Promise(resolve => start({ onReceipt: resolve })), 'RECEIPT')
  }

  send(headers, body) {
    return this.receipt(options => this.client.send(headers, options).end(body))
  }

  /** Subscribes; the RECEIPT of a later frame shows that it has taken effect. */
  async subscribe(destination, headers = {}) {
    const subscription = this.client.subscribe({ destination, ...headers }, (error, message) => {
      if (error) this.messages.fail(error)
      else this.#read(message)
    })
    await this.send({ destination: newTopic() }, 'subscribed?')
    return subscription
  }

  /** Sends ACK or NACK of a message, and waits for its RECEIPT. */
  answer(command, message, headers = {}) {
    return this.receipt(options => this.client[command](message, headers, options))
  }

  #read(message) {
    const chunks = []
    message.on('data', chunk => chunks.push(chunk))
    message.on('end', () => this.messages.put({ headers: message.headers, body: Buffer.concat(chunks) }))
  }

  /** Sends DISCONNECT and waits for its RECEIPT. */
  async close() {
    await within(promisify(this.client.disconnect.bind(this.client))(), 'RECEIPT of DISCONNECT')
    check(this.messages.isEmpty, 'an unexpected MESSAGE came')
  }
}

/** Subscribes, sends, gets receipts, disconnects. */
async function exchange(port) {
  const topic = newTopic()
  const session = await Session.open(port)
  const subscription = await session.subscribe(topic)
  const headers = { colour: 'blue', path: 'C:\\dir', lines: 'one\ntwo', 'content-type': 'text/plain' }
  await session.send({ destination: topic, ...headers }, 'Grüße, 世界, 🜁')
  const message = await session.messages.next()
  equal(message.body.toString(), 'Grüße, 世界, 🜁')
  for (const [name, value] of Object.entries(headers)) equal(message.headers[name], value)
  equal(message.headers.destination, topic)
  equal(message.headers.subscription, String(subscription.getId()))
  subscription.unsubscribe()
  await session.send({ destination: topic }, 'no subscriber')
  await session.close()
}

/** The newest common version is used unless the client offers less. */
async function versions(port) {
  for (const [offered, agreed] of [['1.0,1.1,1.2', '1.2'], ['1.0,1.1', '1.1'], ['1.0', '1.0']]) {
    const session = await Session.open(port, { 'accept-version': offered })
    equal(session.client.headers.version, agreed)
    await session.close()
  }
}

/** Heart-beats of both sides keep an idle connection open for longer than either side's timeout. */
async function heartbeats(port) {
  const session = await Session.open(port, { 'heart-beat': `${BEAT_MS},${BEAT_MS}` })
  const lost = session.errors.next().catch(() => undefined)
  const end = await Promise.race([lost, delay(4 * BEAT_MS, 'alive')])
  equal(end, 'alive')
  await session.send({ destination: newTopic() }, 'still here')
  await session.close()
}

/** A body of all bytes, streamed in pieces, arrives unchanged. */
async function binary(port) {
  const topic = newTopic()
  const session = await Session.open(port)
  await session.subscribe(topic)
  const body = Buffer.from(Uint8Array.from({ length: 262_144 }, (_, index) => index & 255))
  const frame = session.client.send({ destination: topic, 'content-length': body.length })
  for (let start = 0; start < body.length; start += 10_000) frame.write(body.subarray(start, start + 10_000))
  frame.end()
  check((await session.messages.next()).body.equals(body), 'the body has changed')
  await session.close()
}

/** Messages of a transaction arrive after COMMIT, in order; ABORT discards them. */
async function transactions(port) {
  const topic = newTopic()
  const session = await Session.open(port)
  await session.subscribe(topic)
  for (const end of ['abort', 'commit']) {
    const transaction = session.client.begin()
    for (const body of ['first', 'second']) transaction.send({ destination: topic }).end(`${body} ${end}`)
    await session.send({ destination: newTopic() }, 'all accepted?')
    check(session.messages.isEmpty, `a MESSAGE came before ${end}`)
    await session.receipt(options => transaction[end](options))
  }
  equal((await session.messages.next()).body.toString(), 'first commit')
  equal((await session.messages.next()).body.toString(), 'second commit')
  await session.close()
}

/** Messages that were unacknowledged when their client left go to the next one, in every ack mode and version. */
async function acks(port) {
  for (const [version, mode, left] of ACKS) {
    const queue = newQueue()
    const first = await Session.open(port, { 'accept-version': version })
    await first.subscribe(queue, { ack: mode })
    for (const body of ['1', '2', '3']) await first.send({ destination: queue }, body)
    const messages = []
    while (messages.length < 3) messages.push(await first.messages.next())
    equal(messages.map(message => message.body.toString()), ['1', '2', '3'])
    await first.answer('ack', messages[1])
    await first.close()
    const second = await Session.open(port, { 'accept-version': version })
    await second.subscribe(queue)
    for (const body of left) {
      const { body: again, headers } = await second.messages.next()
      equal([again.toString(), headers.redelivered, headers['delivery-count']], [body, 'true', '2'])
    }
    await second.close()
  }
}

/** A negatively acknowledged message is delivered again, with the headers of a redelivery. */
async function nacks(port) {
  for (const version of ['1.1', '1.2']) {
    const queue = newQueue()
    const session = await Session.open(port, { 'accept-version': version })
    await session.subscribe(queue, { ack: 'client-individual' })
    await session.send({ destination: queue }, 'rejected once')
    await session.answer('nack', await session.messages.next())
    const again = await session.messages.next()
    equal([again.body.toString(), again.headers.redelivered], ['rejected once', 'true'])
    equal(again.headers['delivery-count'], '2')
    await session.answer('ack', again)
    await session.close()
  }
}

/** ACK and SEND in one transaction: ABORT undoes both, COMMIT moves the message. */
async function moves(port) {
  const [queue, done] = [newQueue(), newQueue()]
  const session = await Session.open(port)
  await session.subscribe(queue, { ack: 'client-individual' })
  await session.subscribe(done)
  await session.send({ destination: queue }, 'job')
  const job = await session.messages.next()
  for (const end of ['abort', 'commit']) {
    const transaction = session.client.begin()
    await session.answer('ack', job, { transaction: transaction.id })
    transaction.send({ destination: done }).end(end)
    await session.send({ destination: newTopic() }, 'all accepted?')
    check(session.messages.isEmpty, `a MESSAGE came before ${end}`)
    await session.receipt(options => transaction[end](options))
  }
  equal((await session.messages.next()).body.toString(), 'commit')
  await session.close()
  const other = await Session.open(port)
  await other.subscribe(queue)
  await other.close()
}

/** An ERROR ends the connection and reaches the application. */
async function errors(port) {
  const session = await Session.open(port)
  // In current Node versions the stream of the ERROR's body emits the error too, and the library doesn't handle that.
  process.once('uncaughtException', error => session.errors.put(error))
  session.client.send({ destination: `${newTopic()}/*` }).end('no destination')
  const error = await session.errors.next()
  check(error.isApplicationError(), `not the broker's ERROR: ${error}`)
}

const scenarios = { exchange, versions, heartbeats, binary, transactions, acks, nacks, moves, errors }

process.exit(await main(name => scenarios[name]))
