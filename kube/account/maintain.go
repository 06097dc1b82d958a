package account

import (
	"context"
	"slices"
	"time"

	"slipway.io/slipway/kube"
	"slipway.io/slipway/pause"
	"slipway.io/slipway/release/phrase"
)

const (
	// soonest is the shortest pause between two renewals.
	soonest = time.Second
	// missingInterval is how often to look whether a released namespace exists now.
	missingInterval = 15 * time.Second
	// failedInterval is the longest pause before a failed renewal is tried again.
	failedInterval = time.Minute
	// refusedInterval is the pause after a token was refused, so that refusals do not become a load.
	refusedInterval = 2 * time.Second
	// workTimeout bounds one renewal.
	workTimeout = 30 * time.Second
)

// maintain makes the account anew and renews its token as long as the process runs: at half of the token's life, when
// the API server refuses it, and while a released namespace is missing.
func (o *Own) maintain(ctx context.Context, made result) {
	failed := false
	o.logMissing(ctx, nil, made.missing)
	for {
		timer := time.NewTimer(o.next(made, failed))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		case <-o.refused:
			timer.Stop()
			if pause.For(ctx, refusedInterval) != nil {
				return
			}
		}
		before := made.missing
		var err error
		if made, err = o.again(ctx, made); ctx.Err() != nil {
			return
		}
		o.logRenewal(ctx, err, failed)
		o.logMissing(ctx, before, made.missing)
		failed = err != nil
	}
}

// again makes the account anew and renews its token. The token is renewed even if the account may not be made anew.
func (o *Own) again(ctx context.Context, before result) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, workTimeout)
	defer cancel()
	made, err := o.make(ctx)
	if err != nil {
		made = before
		o.o.Log.WarnContext(ctx, "cannot make the service account of this process anew", "account",
			o.o.Account.User(), "error", kube.Text(err))
	}
	return made, o.renew(ctx)
}

// next returns the pause before the next renewal.
func (o *Own) next(made result, failed bool) time.Duration {
	o.mu.Lock()
	t := o.token
	o.mu.Unlock()
	pause := renewalAfter(t, time.Now(), failed)
	if len(made.missing) > 0 {
		pause = min(pause, missingInterval)
	}
	return max(pause, soonest)
}

// renewalAfter returns the pause before a token is renewed: at half of its life, so that an outage of the other half is
// survived; after a failure sooner.
func renewalAfter(t token, now time.Time, failed bool) time.Duration {
	life := min(t.until.Sub(t.issued), tokenLife)
	pause := t.issued.Add(life / 2).Sub(now)
	if failed {
		pause = min(t.issued.Add(life).Sub(now)/2, failedInterval)
	}
	return pause
}

func (o *Own) logRenewal(ctx context.Context, err error, failed bool) {
	o.mu.Lock()
	until := o.token.until
	o.mu.Unlock()
	switch {
	case err != nil:
		o.o.Log.ErrorContext(ctx, "cannot renew the token of the service account with the credentials that this process "+
			"was started with: when the token ends, the process loses its access to the cluster. Renew those "+
			"credentials, or restart the process with others", "account", o.o.Account.User(), "until",
			phrase.Time(until), "error", kube.Text(err))
	case failed:
		o.o.Log.InfoContext(ctx, "the token of the service account is renewed again", "account", o.o.Account.User())
	}
}

// logMissing names the released namespaces that do not exist, when they change.
func (o *Own) logMissing(ctx context.Context, before, missing []string) {
	if len(missing) > 0 && !slices.Equal(before, missing) {
		o.o.Log.WarnContext(ctx, "namespaces of --watch-namespaces do not exist: the service account of this process "+
			"gets its rights there when they do", "missing", missing)
	}
}
