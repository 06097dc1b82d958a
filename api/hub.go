package api

import (
	"context"
	"sync"
)

// hub lets any number of readers watch a release for the price of one: the first starts a follower, the last to leave ends it.
type hub struct {
	follow func(ctx context.Context, workflowID string, news *bulletin)

	mu        sync.Mutex
	closed    bool
	followers map[string]*follower
	running   sync.WaitGroup
}

type follower struct {
	news     *bulletin
	watchers int
	stop     context.CancelFunc
}

func newHub(follow func(ctx context.Context, workflowID string, news *bulletin)) *hub {
	return &hub{follow: follow, followers: map[string]*follower{}}
}

// watch joins the readers of a release. Whoever watches has to leave.
func (h *hub) watch(workflowID string) (news *bulletin, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.followers[workflowID]
	if f == nil {
		f = h.start(workflowID)
	}
	f.watchers++
	return f.news, sync.OnceFunc(func() { h.leave(workflowID, f) })
}

func (h *hub) start(workflowID string) *follower {
	ctx, stop := context.WithCancel(context.Background())
	f := &follower{news: newBulletin(), stop: stop}
	if h.closed {
		f.news.end(errShutdown)
		stop()
		return f
	}
	h.followers[workflowID] = f
	h.running.Go(func() { h.follow(ctx, workflowID, f.news) })
	return f
}

func (h *hub) leave(workflowID string, f *follower) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f.watchers--
	if f.watchers == 0 {
		f.stop()
		if h.followers[workflowID] == f {
			delete(h.followers, workflowID)
		}
	}
}

var errShutdown = kindUnreachable.because("the engine is shutting down: come back in some seconds")

// close ends all watching and returns when nobody follows any more.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	for _, f := range h.followers {
		f.stop()
		f.news.end(errShutdown)
	}
	h.mu.Unlock()
	h.running.Wait()
}
