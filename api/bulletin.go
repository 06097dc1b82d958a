package api

import "sync"

// notice is one event of a stream: name, ID and data as they are sent. The zero notice says nothing.
type notice struct {
	name string
	id   string
	data []byte
	// number grows with each notice, so that a reader knows which it has seen.
	number int64
}

// bulletin holds the latest notice. Readers take what is latest when they are ready for it: a slow one misses what lay between, and nobody waits for it.
type bulletin struct {
	mu      sync.Mutex
	latest  notice
	over    bool
	err     error
	changed chan struct{}
}

func newBulletin() *bulletin { return &bulletin{changed: make(chan struct{})} }

// post makes the notice the latest.
func (b *bulletin) post(name, id string, data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.latest = notice{name: name, id: id, data: data, number: b.latest.number + 1}
	b.announce()
}

// end says that nothing more will come: after an error, or, with nil, since all is said.
func (b *bulletin) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return
	}
	b.over, b.err = true, err
	b.announce()
}

func (b *bulletin) announce() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// reading is what there is to read of a bulletin.
type reading struct {
	latest notice
	// over says that nothing more will come, err why if that is an error.
	over bool
	err  error
	// changed is closed when there is more to read.
	changed <-chan struct{}
}

func (b *bulletin) read() reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	return reading{b.latest, b.over, b.err, b.changed}
}
