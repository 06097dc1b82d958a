package backend

import (
	"context"
	"errors"
	"time"

	"slipway.io/slipway/api/recent"
)

// freshParty is how long is relied on what was read of a party: hundreds of releases may start in a second, and where a party is found hardly ever changes.
const freshParty = time.Second

var errUnknownParty = errors.New("the party is not known")

// Queue is store.Queue, asked once for many who ask at about the same time. That a party is not known is not kept: somebody may be about to create it.
func (b *Backend) Queue(ctx context.Context, party string) (queue string, known bool, err error) {
	queue, err = recent.Get(ctx, b.Parties, party, freshParty, func(ctx context.Context) (string, error) {
		queue, known, err := b.Home.Queue(ctx, party)
		if err == nil && !known {
			err = errUnknownParty
		}
		return queue, err
	})
	if errors.Is(err, errUnknownParty) {
		return "", false, nil
	}
	return queue, err == nil, err
}
