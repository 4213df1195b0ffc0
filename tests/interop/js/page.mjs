// Runs inside the browser. browser.mjs calls the scenarios of `stomp` by name; `chat` answers other clients.

import * as stompjs from '/stompjs_scenarios.mjs'

const stomp = globalThis.StompJs

globalThis.scenario = (name, url) => stompjs[name]({ stomp, url })

/** Answers messages on `topic`/to-page on `topic`/from-page until one is "bye"; calls `ready` when it is subscribed. */
globalThis.chat = async (url, topic) => {
  const session = await stompjs.Session.open({ stomp, url })
  await session.subscribe(`${topic}/to-page`)
  await session.send(`${topic}/from-page`, 'the page is here', { origin: location.origin })
  for (;;) {
    const message = await session.messages.next()
    await session.send(`${topic}/from-page`, `received: ${message.body}`, { colour: message.headers.colour })
    if (message.body === 'bye') return session.close()
  }
}

document.querySelector('#state').textContent = 'ready'
