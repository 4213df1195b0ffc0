// The script of index.html: connects, shows what arrives at the destination, sends what is typed.

const { Client } = globalThis.StompJs
const element = id => document.getElementById(id)

const query = new URLSearchParams(location.search)
element('broker').value = query.get('broker') ?? `ws://${location.hostname || '127.0.0.1'}:61613/stomp`
element('destination').value = query.get('destination') ?? element('destination').value

let client

function show(state) {
  element('state').textContent = state
  element('connect').disabled = state === 'connected'
  element('disconnect').disabled = element('send').disabled = state !== 'connected'
}

function showMessage(message) {
  const item = document.createElement('li')
  // textContent, never innerHTML: messages of others must not be trusted as markup.
  item.textContent = `${message.headers.destination}: ${message.body}`
  element('messages').append(item)
}

element('connection').addEventListener('submit', event => {
  event.preventDefault()
  const destination = element('destination').value
  client = new Client({
    brokerURL: element('broker').value,
    reconnectDelay: 0,
    onConnect: () => {
      client.watchForReceipt('subscribed', () => show('connected'))
      client.subscribe(destination, showMessage, { receipt: 'subscribed' })
    },
    onStompError: frame => show(`refused: ${frame.headers.message}`),
    onWebSocketClose: () => {
      if (element('state').textContent === 'connected') show('not connected')
    },
    onWebSocketError: () => show('no connection'),
  })
  client.activate()
})

element('publish').addEventListener('submit', event => {
  event.preventDefault()
  client.publish({ destination: element('destination').value, body: element('body').value })
})

element('disconnect').addEventListener('click', () => client.deactivate())
