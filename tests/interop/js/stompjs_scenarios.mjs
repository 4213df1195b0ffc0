// Scenarios of @stomp/stompjs, the same in Node and in a browser. Each scenario takes an environment `{ stomp, url }`:
// the library's exports and the broker's WebSocket address.

import { ACKS, BEAT_MS, Inbox, check, equal, newQueue, newTopic, within } from './support.mjs'

/** A connected client with promises for the library's callbacks. */
export class Session {
  messages = new Inbox('MESSAGE')
  beats = new Inbox('heart-beat')
  errors = new Inbox('ERROR')
  closes = new Inbox('close of the WebSocket')
  receipts = 0

  static async open({ stomp, url }, options = {}) {
    const session = new Session()
    const connected = new Inbox('CONNECTED')
    session.client = new stomp.Client({
      brokerURL: url,
      reconnectDelay: 0,
      heartbeatIncoming: 0,
      heartbeatOutgoing: 0,
      connectHeaders: { host: 'localhost' },
      onConnect: frame => connected.put(frame),
      onStompError: frame => {
        connected.fail(new Error(frame.headers.message))
        session.errors.put(frame)
      },
      onWebSocketClose: event => {
        connected.fail(new Error(`closed with ${event.code} ${event.reason}`))
        session.closes.put(event)
      },
      onHeartbeatReceived: () => session.beats.put('beat'),
      onHeartbeatLost: () => session.beats.fail(new Error('the server missed its heart-beats')),
      ...options,
    })
    session.client.activate()
    session.connected = (await connected.next()).headers
    return session
  }

  /** Calls `act` with extra headers that request a RECEIPT, and waits for it. */
  receipt(act) {
    // The library escapes headers in 1.2 only, although 1.1 requires it, too.
    const id = `receipt${this.client.connectedVersion === '1.2' ? ':' : '-'}${this.receipts++}`
    const came = new Promise(resolve => this.client.watchForReceipt(id, resolve))
    act({ receipt: id })
    return within(came, `RECEIPT ${id}`)
  }

  async subscribe(destination, headers = {}) {
    let subscription
    await this.receipt(receipt => {
      subscription = this.client.subscribe(destination, message => this.messages.put(message), { ...headers, ...receipt })
    })
    return subscription
  }

  send(destination, body, headers = {}) {
    return this.receipt(receipt => this.client.publish({ destination, body, headers: { ...headers, ...receipt } }))
  }

  /** Sends DISCONNECT, waits for its RECEIPT and for the close of the WebSocket. */
  async close() {
    const receipt = new Inbox('RECEIPT of DISCONNECT')
    this.client.onDisconnect = frame => receipt.put(frame)
    await within(this.client.deactivate(), 'end of the connection')
    await receipt.next()
    check(this.errors.isEmpty, 'an ERROR came')
    check(this.messages.isEmpty, 'an unexpected MESSAGE came')
  }
}

/** Subscribes, sends, gets receipts, disconnects. */
export async function exchange(environment) {
  const topic = newTopic()
  const session = await Session.open(environment)
  const subscription = await session.subscribe(topic)
  const headers = { colour: 'blue', path: 'C:\\dir', lines: 'one\ntwo\r\nthree', 'content-type': 'text/plain' }
  await session.send(topic, 'Grüße, 世界, 🜁', headers)
  const message = await session.messages.next()
  equal(message.body, 'Grüße, 世界, 🜁')
  for (const [name, value] of Object.entries(headers)) equal(message.headers[name], value)
  equal(message.headers.destination, topic)
  equal(message.headers.subscription, subscription.id)
  check(!('receipt' in message.headers), 'the MESSAGE has the receipt header of the SEND')
  await session.receipt(receipt => subscription.unsubscribe(receipt))
  await session.send(topic, 'no subscriber')
  await session.close()
}

/** Every version can be agreed on, also as the WebSocket's subprotocol. */
export async function versions(environment) {
  for (const version of ['1.0', '1.1', '1.2']) {
    const session = await Session.open(environment, { stompVersions: new environment.stomp.Versions([version]) })
    equal(session.client.connectedVersion, version)
    equal(session.client.webSocket.protocol, `v${version.replace('.', '')}.stomp`)
    await session.close()
  }
}

/** Heart-beats of both sides keep an idle connection open for longer than either side's timeout. */
export async function heartbeats(environment) {
  const session = await Session.open(environment, { heartbeatIncoming: BEAT_MS, heartbeatOutgoing: BEAT_MS })
  for (let count = 0; count < 4; count++) await session.beats.next()
  await session.send(newTopic(), 'still here')
  await session.close()
}

/** A body of all bytes arrives unchanged. */
export async function binary(environment) {
  const topic = newTopic()
  const session = await Session.open(environment)
  await session.subscribe(topic)
  const body = Uint8Array.from({ length: 1024 }, (_, index) => index & 255)
  session.client.publish({ destination: topic, binaryBody: body, headers: { 'content-type': 'application/octet-stream' } })
  const message = await session.messages.next()
  equal(Array.from(message.binaryBody), Array.from(body))
  await session.close()
}

/** One frame may be sent in many WebSocket messages, and be far larger than any of them. */
export async function large(environment) {
  const topic = newTopic()
  const session = await Session.open(environment, { splitLargeFrames: true })
  await session.subscribe(topic)
  const body = 'All work and no play. '.repeat(20_000)
  await session.send(topic, body)
  const message = await session.messages.next()
  check(message.body === body, `${message.body.length} characters, not the ${body.length} that were sent`)
  await session.close()
}

/** Messages of a transaction arrive after COMMIT, in order; ABORT discards them. */
export async function transactions(environment) {
  const topic = newTopic()
  const session = await Session.open(environment)
  await session.subscribe(topic)
  for (const end of ['abort', 'commit']) {
    const transaction = session.client.begin()
    for (const body of ['first', 'second']) await session.send(topic, `${body} ${end}`, { transaction: transaction.id })
    check(session.messages.isEmpty, `a MESSAGE came before ${end}`)
    transaction[end]()
  }
  equal((await session.messages.next()).body, 'first commit')
  equal((await session.messages.next()).body, 'second commit')
  await session.close()
}

/** Messages that were unacknowledged when their client left go to the next one, in every ack mode and version. */
export async function acks(environment) {
  for (const [version, mode, left] of ACKS) {
    const queue = newQueue()
    const only = { stompVersions: new environment.stomp.Versions([version]) }
    const first = await Session.open(environment, only)
    await first.subscribe(queue, { ack: mode })
    for (const body of ['1', '2', '3']) await first.send(queue, body)
    const messages = []
    while (messages.length < 3) messages.push(await first.messages.next())
    equal(messages.map(message => message.body), ['1', '2', '3'])
    await first.receipt(receipt => messages[1].ack(receipt))
    await first.close()
    const second = await Session.open(environment, only)
    await second.subscribe(queue)
    for (const body of left) {
      const { body: again, headers } = await second.messages.next()
      equal([again, headers.redelivered, headers['delivery-count']], [body, 'true', '2'])
    }
    await second.close()
  }
}

/** A negatively acknowledged message is delivered again, with the headers of a redelivery. */
export async function nacks(environment) {
  for (const version of ['1.1', '1.2']) {
    const queue = newQueue()
    const session = await Session.open(environment, { stompVersions: new environment.stomp.Versions([version]) })
    await session.subscribe(queue, { ack: 'client-individual' })
    await session.send(queue, 'rejected once')
    const first = await session.messages.next()
    await session.receipt(receipt => first.nack(receipt))
    const again = await session.messages.next()
    equal([again.body, again.headers.redelivered, again.headers['delivery-count']], ['rejected once', 'true', '2'])
    await session.receipt(receipt => again.ack(receipt))
    await session.close()
  }
}

/** ACK and SEND in one transaction: ABORT undoes both, COMMIT moves the message. */
export async function moves(environment) {
  const [queue, done] = [newQueue(), newQueue()]
  const session = await Session.open(environment)
  await session.subscribe(queue, { ack: 'client-individual' })
  await session.subscribe(done)
  await session.send(queue, 'job')
  const job = await session.messages.next()
  for (const end of ['abort', 'commit']) {
    const transaction = session.client.begin()
    await session.receipt(receipt => job.ack({ transaction: transaction.id, ...receipt }))
    await session.send(done, end, { transaction: transaction.id })
    check(session.messages.isEmpty, `a MESSAGE came before ${end}`)
    transaction[end]()
  }
  equal((await session.messages.next()).body, 'commit')
  await session.close()
  const other = await Session.open(environment)
  await other.subscribe(queue)
  await other.close()
}

/** A request and its answer over a temporary queue that only its owner can read. */
export async function replies(environment) {
  const queue = newQueue()
  const [service, requester] = [await Session.open(environment), await Session.open(environment)]
  await service.subscribe(queue)
  await requester.subscribe('/temp-queue/answers')
  await requester.send(queue, 'how many?', { 'reply-to': '/temp-queue/answers', 'correlation-id': '7' })
  const { headers } = await service.messages.next()
  check(headers['reply-to'].startsWith('/temp-queue/'), `reply-to is ${headers['reply-to']}`)
  await service.send(headers['reply-to'], 'three', { 'correlation-id': headers['correlation-id'] })
  const answer = await requester.messages.next()
  equal([answer.body, answer.headers['correlation-id']], ['three', '7'])
  equal(answer.headers.destination, '/temp-queue/answers')
  await requester.close()
  await service.close()
}

/** Many messages arrive completely and in order. */
export async function order(environment) {
  const topic = newTopic()
  const session = await Session.open(environment)
  await session.subscribe(`${topic}/*`)
  const count = 2_000
  for (let number = 0; number < count; number++) {
    session.client.publish({ destination: `${topic}/${number % 7}`, body: String(number) })
  }
  for (let number = 0; number < count; number++) equal((await session.messages.next()).body, String(number))
  await session.close()
}

/** An ERROR has a reason; then the WebSocket closes with the code for protocol errors. */
export async function errors(environment) {
  const session = await Session.open(environment)
  session.client.publish({ destination: `${newTopic()}/*`, body: 'no destination', headers: { receipt: 'never' } })
  const error = await session.errors.next()
  check(error.headers.message, 'the ERROR has no message')
  check(error.headers.code.startsWith('E-'), 'the ERROR has no code')
  equal(error.headers['receipt-id'], 'never')
  equal((await session.closes.next()).code, 1002)
}
