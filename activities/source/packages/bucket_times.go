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

// noted is an object whose name says when a package was stored, and last used.
type noted struct {
	key, digest  string
	stored, used time.Time
}

// name is what the object is called below times/.
func (t noted) name() string { return t.digest + "/" + inName(t.stored) + "-" + inName(t.used) }

// parseNoted reads such a name.
func parseNoted(key, prefix string) (noted, bool) {
	digest, at, ok := strings.Cut(strings.TrimPrefix(key, prefix), "/")
	stored, used, both := strings.Cut(at, "-")
	return noted{key: key, digest: digest, stored: instant(stored), used: instant(used)}, ok && both && ValidDigest(digest)
}

// inName is a time as names have it: nanoseconds since 1970 of a fixed width.
func inName(at time.Time) string { return fmt.Sprintf("%019d", at.UnixNano()) }

// instant is a time out of a name; what is none is long ago.
func instant(text string) time.Time {
	nanoseconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Unix(0, 0).UTC()
	}
	return time.Unix(0, nanoseconds).UTC()
}

// times are all notes of one package. More than one is there when processes have used it at once, or one was killed.
type times []noted

// of gives a package the times that are noted; without any it keeps its own.
func (all times) of(p Package) Package {
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

// timesOf are the notes of one package.
func (b *bucket) timesOf(ctx context.Context, digest string) (times, error) {
	names, err := b.names(ctx, b.key(timesPrefix, digest, "/"))
	if err != nil {
		return nil, err
	}
	var all times
	for _, name := range names {
		if t, ok := parseNoted(name, b.key(timesPrefix)); ok {
			all = append(all, t)
		}
	}
	return all, nil
}

// times are the notes of the packages after one, up to and with another, in the order of digests; "" is the beginning, and the end.
func (b *bucket) times(ctx context.Context, after, last string) iter.Seq2[noted, error] {
	options := minio.ListObjectsOptions{Prefix: b.key(timesPrefix), Recursive: true}
	if after != "" {
		options.StartAfter = b.key(timesPrefix, after, "/~")
	}
	return func(yield func(noted, error) bool) {
		for o := range b.s3.ListObjectsIter(ctx, b.name, options) {
			if o.Err != nil {
				yield(noted{}, o.Err)
				return
			}
			t, ok := parseNoted(o.Key, options.Prefix)
			if last != "" && ok && t.digest > last {
				return
			}
			if ok && t.digest > after && !yield(t, nil) {
				return
			}
		}
	}
}

// tidyTimes removes the notes of a package that say less than this one. A use that another process has noted meanwhile stays.
func (b *bucket) tidyTimes(ctx context.Context, newest noted) {
	all, err := b.timesOf(ctx, newest.digest)
	if err != nil {
		return // the next use tries again
	}
	for _, t := range all {
		if t.key != newest.key && !t.stored.After(newest.stored) && !t.used.After(newest.used) {
			b.tidy(ctx, t.key)
		}
	}
}
