package fetch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/release/source"
)

// downloads tries URLs until one returns the package.
type downloads struct {
	app    *app.App
	client *download.Client
	sha256 string
	// retryUntil is the time after which temporary failures are no longer retried.
	retryUntil time.Time
	target     *os.File
}

// fetchAny downloads the package from the first URL that has it. A URL that failed permanently is not retried.
func (d *downloads) fetchAny(ctx context.Context, urls []string) error {
	reasons := make([]error, len(urls))
	final := make([]bool, len(urls))
	for round := 1; ; round++ {
		pause := time.Duration(-1)
		for i, url := range urls {
			if final[i] {
				continue
			}
			reasons[i] = d.fetch(ctx, url)
			if reasons[i] == nil {
				return nil
			}
			if err := ctx.Err(); err != nil {
				return err
			}
			d.app.Printf(d.app.Err, "%s\n", reasons[i])
			if wait, again := download.RetryAfter(reasons[i], round); !again {
				final[i] = true
			} else if pause < 0 || wait < pause {
				pause = wait
			}
		}
		if pause < 0 || d.app.Now().Add(pause).After(d.retryUntil) {
			return d.joinFailures(reasons)
		}
		d.app.Printf(d.app.Err, "retrying in %s\n", pause.Round(time.Second))
		d.app.Wait(ctx, pause)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (d *downloads) fetch(ctx context.Context, url string) error {
	got, err := d.client.Fetch(ctx, url, d.target)
	if err != nil {
		return err
	}
	if got.SHA256 != d.sha256 {
		return fmt.Errorf("%s: the package has changed: its digest is sha256:%s, not sha256:%s", source.Redact(url),
			got.SHA256, d.sha256)
	}
	d.app.Printf(d.app.Out, "downloaded %d bytes from %s\n", got.Bytes, got.FinalURL)
	return nil
}

// joinFailures returns one error for the failures of all URLs.
func (d *downloads) joinFailures(reasons []error) error {
	texts := make([]string, len(reasons))
	for i, reason := range reasons {
		texts[i] = reason.Error()
	}
	return fmt.Errorf("cannot download the package sha256:%s: %s", d.sha256, strings.Join(texts, "; "))
}
