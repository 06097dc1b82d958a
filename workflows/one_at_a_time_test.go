package workflows

import (
	"context"
	"sync"

	"go.temporal.io/sdk/interceptor"
)

// interceptors returns the interceptors of a test environment: the product's, one activity at a time, and more.
func interceptors(more ...interceptor.WorkerInterceptor) []interceptor.WorkerInterceptor {
	return append([]interceptor.WorkerInterceptor{NewInterceptor(), &oneAtATime{}}, more...)
}

// oneAtATime serialises the activities of a test environment. A workflow starts several at once, each in its own
// goroutine, and they share one fake.
type oneAtATime struct {
	interceptor.WorkerInterceptorBase
	mu sync.Mutex
}

func (o *oneAtATime) InterceptActivity(_ context.Context,
	next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	locked := &lockedActivity{mu: &o.mu}
	locked.Next = next
	return locked
}

type lockedActivity struct {
	interceptor.ActivityInboundInterceptorBase
	mu *sync.Mutex
}

func (l *lockedActivity) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Next.ExecuteActivity(ctx, in)
}
