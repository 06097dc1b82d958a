package input

import (
	"context"

	"golang.org/x/sync/semaphore"

	"slipway.io/slipway/api/problem"
)

// A large body has at least largeBody bytes; a plan of 100 items is not large. At most maxDecoding of them are decoded
// at once in this process, since each may take tens of MiB meanwhile. They and those that wait have at most maxWaiting
// bytes.
const (
	largeBody   = 64 << 10
	maxDecoding = 2
	maxWaiting  = 32 << 20
)

var (
	decoding = semaphore.NewWeighted(maxDecoding)
	waiting  = semaphore.NewWeighted(maxWaiting)
)

// awaitTurn waits until a body may be decoded. done must be called afterwards.
func awaitTurn(ctx context.Context, body []byte) (done func(), err error) {
	size := int64(len(body))
	if size < largeBody {
		return func() {}, nil
	}
	if !waiting.TryAcquire(size) {
		return nil, problem.Unreachable.Because("the engine is decoding large documents of other requests; nothing was " +
			"changed: repeat in a few seconds")
	}
	if err := decoding.Acquire(ctx, 1); err != nil {
		waiting.Release(size)
		return nil, err
	}
	return func() {
		decoding.Release(1)
		waiting.Release(size)
	}, nil
}
