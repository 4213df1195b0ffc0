// What the examples share: a connected @stomp/stompjs client, and the command line.

import { parseArgs } from 'node:util'
import { Client } from '@stomp/stompjs'
import { WebSocket } from 'ws'

// The library wants a browser's WebSocket; Node has one of its own from version 22 on.
Object.assign(globalThis, { WebSocket })

/** The command line's `--name value` pairs over `defaults`; a number stays a number. */
export function options(defaults) {
  const described = Object.keys(defaults).map(name => [name, { type: 'string' }])
  const { values } = parseArgs({ options: Object.fromEntries(described) })
  for (const name of Object.keys(values)) {
    if (typeof defaults[name] === 'number') values[name] = Number(values[name])
  }
  return { ...defaults, ...values }
}

/** A connected client. It ends the program when the broker refuses something or the connection is lost. */
export function connect({ host, port }) {
  return new Promise(resolve => {
    let end = `no broker answers at ${host}:${port}`
    const client = new Client({
      brokerURL: `ws://${host}:${port}/stomp`,
      connectHeaders: { host },
      reconnectDelay: 0,
      heartbeatIncoming: 10_000,
      heartbeatOutgoing: 10_000,
      onConnect: () => {
        end = 'the connection was lost'
        resolve(client)
      },
      onStompError: frame => {
        console.error(`${frame.headers.message}\n${frame.body}`)
        process.exit(1)
      },
      // What fails ends in a close, too.
      onWebSocketClose: () => {
        if (!client.active) return
        console.error(end)
        process.exit(1)
      },
    })
    client.activate()
  })
}

let receipts = 0

/** Calls `act` with a header that asks for a RECEIPT, and waits for it. */
export function receipt(client, act) {
  return new Promise(resolve => {
    const id = `receipt-${receipts++}`
    client.watchForReceipt(id, resolve)
    act({ receipt: id })
  })
}

/** Subscribes; when this returns, the subscription has taken effect. */
export function subscribe(client, destination, onMessage) {
  return receipt(client, headers => client.subscribe(destination, onMessage, headers))
}
