package attempt

import (
	"sync"
	"time"
)

// Place is how long a whole keeps its place at the worker: for ListenFor since what it waits for has last come on, and not beyond its end. It is safe for
// concurrent use.
type Place struct {
	now       func() time.Time
	listenFor time.Duration

	mu sync.Mutex
	// until is when the place is given back as it stands, end when it is in any case.
	until, end time.Time
}

// NewPlace is the place of a whole that begins now and takes longest at most.
func NewPlace(now func() time.Time, listenFor, longest time.Duration) *Place {
	p := &Place{now: now, listenFor: listenFor, end: now().Add(longest)}
	p.Moved()
	return p
}

// Until implements Whole.
func (p *Place) Until() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.until
}

// Moved implements Whole.
func (p *Place) Moved() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = p.now().Add(p.listenFor)
	p.keepEnd()
}

// EndBy has the place given back then at the latest; the zero time is at once.
func (p *Place) EndBy(end time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if end.Before(p.end) {
		p.end = end
	}
	p.keepEnd()
}

func (p *Place) keepEnd() {
	if p.end.Before(p.until) {
		p.until = p.end
	}
}
