package rollout

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/release/backoff"
	"slipway.io/slipway/release/kruise"
	"slipway.io/slipway/release/kruise/v1beta1"
)

// memories are what is known of each object in addition to its content, until it is deleted. They only save work: a new
// process starts empty.
type memories struct {
	mu    sync.Mutex
	known map[cache.ObjectName]*memory
}

// memory is what is known of one object. The queue gives an object to one worker at a time, and only that worker uses
// its memory.
type memory struct {
	// refusal is why its release did not begin. sent is the last command that was sent, including starts: a release
	// accepts a key once. shown is the text that the object was last made to show.
	refusal     refusal
	sent, shown shownText
	// checked is the last check of whether its release runs, of the object with this UID.
	checked struct {
		of types.UID
		at time.Time
	}
	// written is the last written status.
	written struct {
		of  types.UID
		seq int64
		at  time.Time
	}
}

// shownText is a text, and when it was sent or shown.
type shownText struct {
	text string
	at   time.Time
}

// of returns the memory of an object.
func (m *memories) of(name cache.ObjectName) *memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil {
		m.known = map[cache.ObjectName]*memory{}
	}
	if m.known[name] == nil {
		m.known[name] = &memory{}
	}
	return m.known[name]
}

func (m *memories) forget(name cache.ObjectName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, name)
}

// resendAfter is how long a command is not sent again: the release it triggers changes the workload many times before
// the object shows it.
const resendAfter = 5 * time.Second

// recentlySent returns for how long a command must not be sent again; 0: send it.
func (m *memory) recentlySent(key string, now time.Time) time.Duration {
	if key == "" || m.sent.text != key {
		return 0
	}
	return max(m.sent.at.Add(resendAfter).Sub(now), 0)
}

// shouldShow reports whether the object has to show a text (again), and records it.
func (m *memory) shouldShow(text string, now time.Time) bool {
	if m.shown.text == text && now.Sub(m.shown.at) < otherControllerInterval {
		return false
	}
	m.shown = shownText{text, now}
	return true
}

// refusalPauseMin and refusalPauseMax limit how long a refusal is kept while nothing changes: what a Rollout refers to
// is often applied a moment later, without an event for the Rollout.
const refusalPauseMin, refusalPauseMax = 2 * time.Second, 30 * time.Second

// refusal is why a release did not begin. It is valid until the object or its workload changes, or the next attempt is
// due.
type refusal struct {
	text             string
	object, workload int64
	// times counts the refusals of the same generations; until is when it expires.
	times int
	until time.Time
}

func (m *memory) refuse(object *v1beta1.Rollout, w *kruise.Workload, text string, now time.Time) {
	times := 0
	if m.refusal.matches(object, w) {
		times = m.refusal.times
	}
	m.refusal = refusal{text, object.Generation, w.Generation, times + 1,
		now.Add(backoff.After(times, refusalPauseMin, refusalPauseMax))}
}

// matches reports whether a refusal is about an object and its workload in their current generations.
func (r refusal) matches(object *v1beta1.Rollout, w *kruise.Workload) bool {
	return w != nil && r.object == object.Generation && r.workload == w.Generation
}

// refused returns why the release of an object did not begin, "" if an attempt is due, and when the next attempt is
// due.
func (m *memory) refused(object *v1beta1.Rollout, w *kruise.Workload, now time.Time) (text string, retryAt time.Time) {
	if last := m.refusal; last.matches(object, w) && now.Before(last.until) {
		return last.text, last.until
	}
	return "", time.Time{}
}

// checkDue reports whether it is time to check whether the object's release still runs, and records it. The first call
// returns false: the object has just been written. A recreated object has another UID.
func (m *memory) checkDue(r *v1beta1.Rollout, now time.Time) bool {
	known := m.checked.of == r.UID
	if known && now.Sub(m.checked.at) < checkInterval-time.Second {
		return false
	}
	m.checked.of, m.checked.at = r.UID, now
	return known
}

// writeVisibleTimeout is how long the watch may take to deliver a written status.
const writeVisibleTimeout = 2 * time.Second

func (m *memory) wrote(r *v1beta1.Rollout, now time.Time) {
	m.written.of, m.written.seq, m.written.at = r.UID, seqOf(r), now
}

// unseen returns for how long to wait until the watch delivers the written status; 0: it has, or never will. A decision
// based on an older status could only cause a conflict, while changes of the workload keep waking its object.
func (m *memory) unseen(r *v1beta1.Rollout, now time.Time) time.Duration {
	if m.written.of != r.UID || seqOf(r) >= m.written.seq {
		return 0
	}
	return max(m.written.at.Add(writeVisibleTimeout).Sub(now), 0)
}

// seqOf is the sequence number of an object's status.
func seqOf(r *v1beta1.Rollout) int64 {
	if r.Status.Slipway == nil {
		return 0
	}
	return r.Status.Slipway.Seq
}
