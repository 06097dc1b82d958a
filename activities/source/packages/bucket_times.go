package packages

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// timesObject is an empty object whose name records when a package was stored and last used.
type timesObject struct {
	key, digest  string
	stored, used time.Time
}

// name returns the object's name below times/.
func (t timesObject) name() string {
	return t.digest + "/" + formatTime(t.stored) + "-" + formatTime(t.used)
}

// parseTimesObject parses such a name.
func parseTimesObject(key, prefix string) (timesObject, bool) {
	digest, at, ok := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	stored, used, both := strings.Cut(at, "-")
	return timesObject{key: key, digest: digest, stored: parseTime(stored), used: parseTime(used)}, ok && both &&
		ValidDigest(digest)
}

// formatTime formats a time for a name: nanoseconds since 1970, padded to 19 digits.
func formatTime(at time.Time) string { return fmt.Sprintf("%019d", at.UnixNano()) }

// instant parses a time in a name; an invalid one becomes 1970.
func parseTime(text string) time.Time {
	nanoseconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return time.Unix(0, nanoseconds).UTC()
}

// times are all timesObjects of one package. There is more than one after concurrent uses, or after a process was
// killed.
type times []timesObject

// applyTo sets the latest recorded times on a package. Without any, the package keeps its own.
func (all times) applyTo(p Package) Package {
	for n, t := range all {
		if n == 0 || t.stored.After(p.StoredAt) {
			p.StoredAt = t.stored
		}
		if n == 0 || t.used.After(p.UsedAt) {
			p.UsedAt = t.used
		}
	}
	return p
}

// timesOf lists the timesObjects of one package.
func (b *bucket) timesOf(ctx context.Context, digest string) (times, error) {
	names, err := b.names(ctx, b.key(timesPrefix, digest, "/"))
	if err != nil {
		return nil, err
	}
	var all times
	for _, name := range names {
		if t, ok := parseTimesObject(name, b.key(timesPrefix)); ok {
			all = append(all, t)
		}
	}
	return all, nil
}

// times lists the timesObjects of the packages behind after, up to and including last, ordered by digest. An empty last
// means up to the end.
func (b *bucket) times(ctx context.Context, after, last string) iter.Seq2[timesObject, error] {
	options := minio.ListObjectsOptions{Prefix: b.key(timesPrefix), Recursive: true}
	if after != "" {
		options.StartAfter = b.key(timesPrefix, after, "/~")
	}
	return func(yield func(timesObject, error) bool) {
		for o := range b.s3.ListObjectsIter(ctx, b.name, options) {
			if o.Err != nil {
				yield(timesObject{}, o.Err)
				return
			}
			t, ok := parseTimesObject(o.Key, options.Prefix)
			if last != "" && ok && t.digest > last {
				return
			}
			if ok && t.digest > after && !yield(t, nil) {
				return
			}
		}
	}
}

// removeOlderTimes removes the timesObjects of a package that are not newer than this one. A later use that another
// process recorded stays.
func (b *bucket) removeOlderTimes(ctx context.Context, newest timesObject) {
	all, err := b.timesOf(ctx, newest.digest)
	if err != nil {
		return // the next use tries again
	}
	for _, t := range all {
		if t.key != newest.key && !t.stored.After(newest.stored) && !t.used.After(newest.used) {
			b.tryRemove(ctx, t.key)
		}
	}
}
