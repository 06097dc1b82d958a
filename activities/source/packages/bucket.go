package packages

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"slipway.io/slipway/failpoint"
)

// What is under the prefix of a bucket. The packages are sha256/{digest}; times/{digest}/{stored}-{used} says when each was stored and used,
// and removing/{digest}/{since}-{random} that somebody removes it. Those two are empty, so that a list of names says all.
const (
	timesPrefix    = "times/"
	removingPrefix = "removing/"
	probePrefix    = "probe/"
)

const (
	// partBytes is the size of the pieces of an upload, each of which is in memory while it is sent. S3 takes 10,000 of them.
	partBytes, maxParts = 16 << 20, 10_000
	// triesOfBucket is how often a request is sent, at the most: whoever downloads has the source to turn to.
	triesOfBucket = 3
	// openTime is how long it may take to learn whether a bucket can be used, tidyTime how long what is no longer needed is worth waiting for.
	openTime, tidyTime = time.Minute, 10 * time.Second
	// removalTime is how long a removal may take. Whoever comes upon one that began removalStale ago knows that its process has died, also if
	// the clocks of the two differ by a minute.
	removalTime, removalStale = 30 * time.Second, 2 * time.Minute
	// leftTime is when an upload that was not ended, and the times of a package that is not there, are taken for what a killed process left.
	leftTime = 24 * time.Hour
)

// BucketOptions say where a bucket is. It has to be one whose answers show every write that came before, as those of Amazon S3 do.
type BucketOptions struct {
	// Bucket and Prefix are where the packages are: the prefix is empty or ends with a slash.
	Bucket, Prefix string
	// Endpoint is the URL of a service that speaks S3. Region may be empty: it is then asked for.
	Endpoint, Region string
}

// bucket keeps packages as objects. Several processes may work on it at once.
//
// S3 cannot remove an object on the condition that nobody has used it meanwhile. So whoever removes a package announces it, and only then looks
// when it was last used; and whoever uses or stores one notes that first, and only then looks for an announcement. Of two that come together,
// at least one sees the other, and gives way.
type bucket struct {
	s3           minio.Core
	name, prefix string
	now          func() time.Time
}

// OpenBucket opens the store in a bucket, and clears away what killed processes left long ago. The credentials are what programs for AWS find: the
// environment, ~/.aws/credentials, or the role of the pod or machine.
func OpenBucket(ctx context.Context, where BucketOptions, options Options) (*Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	found := findCredentials()
	client, err := newS3(where, found)
	if err != nil {
		return nil, err
	}
	b := &bucket{s3: minio.Core{Client: client}, name: where.Bucket, prefix: where.Prefix}
	s := newStore(b, options)
	b.now = s.now
	if given, err := found.GetWithContext(client.CredContext()); err != nil || given.AccessKeyID == "" {
		return nil, errors.Join(fmt.Errorf("no credentials for bucket %s were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run with a role",
			where.Bucket), err)
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func findCredentials() *credentials.Credentials {
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: tidyTime}},
	})
}

func newS3(where BucketOptions, found *credentials.Credentials) (*minio.Client, error) {
	endpoint, err := url.Parse(where.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("the endpoint of the bucket is no URL: %w", err)
	}
	if strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("the endpoint %s has a path: name the service alone, and the bucket and prefix apart", where.Endpoint)
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: found, Secure: endpoint.Scheme == "https", Region: where.Region, MaxRetries: triesOfBucket,
	})
	if err != nil {
		return nil, fmt.Errorf("bucket %s at %s cannot be used: %w", where.Bucket, where.Endpoint, err)
	}
	return client, nil
}

func (b *bucket) close() error { return nil }

func (b *bucket) key(name ...string) string { return b.prefix + strings.Join(name, "") }

func (b *bucket) object(digest string) string { return b.key(stored, "/", digest) }

// failed says what could not be done, and which of the store's errors it is.
func (b *bucket) failed(doing string, err error) error {
	var answer minio.ErrorResponse
	errors.As(err, &answer)
	switch {
	case err == nil:
		return nil
	case answer.Code == minio.NoSuchKey:
		return ErrAbsent
	case answer.StatusCode == http.StatusInsufficientStorage || strings.Contains(answer.Code, "QuotaExceeded"):
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("%s in bucket %s: %w", doing, b.name, err)
}

// ready asks for the bucket only: what may be done in it was tried at the start.
func (b *bucket) ready(ctx context.Context) error {
	there, err := b.s3.BucketExists(ctx, b.name)
	if err != nil {
		return b.failed("nothing can be read", err)
	}
	if !there {
		return fmt.Errorf("there is no bucket %s", b.name)
	}
	return nil
}

// prepare tries everything that the store does, and clears away what is left.
func (b *bucket) prepare(ctx context.Context) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	probe := b.key(probePrefix, rand.Text())
	if err := b.put(ctx, probe); err != nil {
		return b.failed("nothing can be written (s3:PutObject)", err)
	}
	if _, err := b.s3.StatObject(ctx, b.name, probe, minio.StatObjectOptions{}); err != nil {
		return b.failed("nothing can be read (s3:GetObject)", err)
	}
	if _, err := b.names(ctx, b.key(probePrefix)); err != nil {
		return b.failed("nothing can be listed (s3:ListBucket)", err)
	}
	if err := b.drop(ctx, probe); err != nil {
		return b.failed("nothing can be removed (s3:DeleteObject)", err)
	}
	if err := b.clearUploads(ctx); err != nil {
		return b.failed("uploads cannot be listed or aborted (s3:ListBucketMultipartUploads, s3:AbortMultipartUpload)", err)
	}
	return b.failed("what killed processes left cannot be removed", b.clearTimes(ctx))
}

func (b *bucket) clearUploads(ctx context.Context) error {
	for upload := range b.s3.ListIncompleteUploads(ctx, b.name, b.object(""), true) {
		if upload.Err != nil {
			return upload.Err
		}
		if b.now().Sub(upload.Initiated) < leftTime {
			continue
		}
		if err := b.s3.AbortMultipartUpload(ctx, b.name, upload.Key, upload.UploadID); err != nil {
			return err
		}
	}
	return nil
}

// clearTimes removes the times of packages that have long been gone. A package that appears has its times first.
func (b *bucket) clearTimes(ctx context.Context) error {
	after := ""
	for {
		page, next, err := b.objects(ctx, 1000, after)
		if err != nil {
			return err
		}
		there := map[string]bool{}
		for _, p := range page {
			there[p.SHA256] = true
		}
		for t, err := range b.times(ctx, after, next) {
			if err != nil {
				return err
			}
			if there[t.digest] || b.now().Sub(t.used) < leftTime {
				continue
			}
			if err := b.drop(ctx, t.key); err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// put writes an object whose name says all.
func (b *bucket) put(ctx context.Context, key string) error {
	_, err := b.s3.PutObject(ctx, b.name, key, bytes.NewReader(nil), 0, "", sumOf(nil), minio.PutObjectOptions{DisableContentSha256: true})
	return err
}

// sumOf is what the signature of a request covers: the library signs the pieces of a stream otherwise, which not every service reads.
func sumOf(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func (b *bucket) drop(ctx context.Context, key string) error {
	return b.s3.RemoveObject(ctx, b.name, key, minio.RemoveObjectOptions{})
}

// tidy removes what does no harm if it stays, also for somebody who is gone.
func (b *bucket) tidy(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	for _, key := range keys {
		_ = b.drop(ctx, key)
	}
}

// names are the objects whose names begin so, sorted.
func (b *bucket) names(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	for o := range b.s3.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			return nil, o.Err
		}
		names = append(names, o.Key)
	}
	return names, nil
}

func (b *bucket) stat(ctx context.Context, digest string) (Package, error) {
	o, err := b.s3.StatObject(ctx, b.name, b.object(digest), minio.StatObjectOptions{})
	if err != nil {
		return Package{}, b.failed("package "+digest+" cannot be read", err)
	}
	found := Package{SHA256: digest, Bytes: o.Size, StoredAt: o.LastModified.UTC(), UsedAt: o.LastModified.UTC()}
	kept, err := b.timesOf(ctx, digest)
	if err != nil {
		return Package{}, b.failed("the times of package "+digest+" cannot be read", err)
	}
	return kept.of(found), nil
}

// open leaves the times of use out: whoever downloads doesn't ask for them.
func (b *bucket) open(ctx context.Context, digest string) (io.ReadSeekCloser, time.Time, error) {
	object, err := b.s3.Client.GetObject(ctx, b.name, b.object(digest), minio.GetObjectOptions{})
	if err != nil {
		return nil, time.Time{}, b.failed("package "+digest+" cannot be read", err)
	}
	o, err := object.Stat()
	if err != nil {
		return nil, time.Time{}, errors.Join(b.failed("package "+digest+" cannot be read", err), object.Close())
	}
	return object, o.LastModified.UTC(), nil
}

// objects are the packages after a digest, with the times that S3 has of them.
func (b *bucket) objects(ctx context.Context, limit int, after string) (page []Package, next string, err error) {
	options := minio.ListObjectsOptions{Prefix: b.object(""), Recursive: true, MaxKeys: min(limit+1, 1000)}
	if after != "" {
		options.StartAfter = b.object(after)
	}
	page = []Package{}
	for o := range b.s3.ListObjectsIter(ctx, b.name, options) {
		digest := strings.TrimPrefix(o.Key, options.Prefix)
		switch {
		case o.Err != nil:
			return nil, "", o.Err
		case !ValidDigest(digest) || digest <= after:
			continue
		case len(page) == limit:
			return page, page[limit-1].SHA256, nil
		}
		page = append(page, Package{SHA256: digest, Bytes: o.Size, StoredAt: o.LastModified.UTC(), UsedAt: o.LastModified.UTC()})
	}
	return page, "", nil
}

func (b *bucket) list(ctx context.Context, limit int, after string) ([]Package, string, error) {
	page, next, err := b.objects(ctx, limit, after)
	if err != nil {
		return nil, "", b.failed("packages cannot be listed", err)
	}
	kept := map[string]times{}
	for t, err := range b.times(ctx, after, next) {
		if err != nil {
			return nil, "", b.failed("the times of packages cannot be listed", err)
		}
		kept[t.digest] = append(kept[t.digest], t)
	}
	for n, p := range page {
		page[n] = kept[p.SHA256].of(p)
	}
	return page, next, nil
}

func (b *bucket) use(ctx context.Context, found Package) error {
	kept, err := b.note(ctx, found)
	if err != nil {
		return err
	}
	if _, err := b.s3.StatObject(ctx, b.name, b.object(found.SHA256), minio.StatObjectOptions{}); err != nil {
		err = b.failed("package "+found.SHA256+" cannot be read", err)
		if errors.Is(err, ErrAbsent) {
			b.tidy(ctx, kept.key) // it was removed before the use was noted
		}
		return err
	}
	b.tidyTimes(ctx, kept)
	return nil
}

// note writes when a package was used, and makes sure that nobody removes it who has not seen that.
func (b *bucket) note(ctx context.Context, p Package) (noted, error) {
	kept := noted{digest: p.SHA256, stored: p.StoredAt, used: p.UsedAt}
	kept.key = b.key(timesPrefix, kept.name())
	if err := b.put(ctx, kept.key); err != nil {
		return noted{}, b.failed("the use of package "+p.SHA256+" cannot be noted", err)
	}
	failpoint.Hit("packages.noted")
	announced, err := b.names(ctx, b.key(removingPrefix, p.SHA256, "/"))
	if err != nil {
		return noted{}, b.failed("who removes package "+p.SHA256+" cannot be seen", err)
	}
	for _, key := range announced {
		if since, _, _ := strings.Cut(key[strings.LastIndex(key, "/")+1:], "-"); b.now().Sub(instant(since)) < removalStale {
			return noted{}, ErrBusy
		}
		b.tidy(ctx, key)
	}
	return kept, nil
}

func (b *bucket) remove(ctx context.Context, digest string, allowed func(Package) error) error {
	ctx, cancel := context.WithTimeout(ctx, removalTime)
	defer cancel()
	announced := b.key(removingPrefix, digest, "/", inName(b.now()), "-", rand.Text())
	if err := b.put(ctx, announced); err != nil {
		return b.failed("the removal of package "+digest+" cannot be announced", err)
	}
	failpoint.Hit("packages.announced")
	found, err := b.stat(ctx, digest)
	if err == nil {
		err = allowed(found)
	}
	if err != nil {
		b.tidy(ctx, announced)
		return err
	}
	if err := b.drop(ctx, b.object(digest)); err != nil {
		return b.failed("package "+digest+" cannot be removed", err) // perhaps it will be, by a request that is under way: the announcement stays
	}
	failpoint.Hit("packages.deleted")
	defer b.tidy(ctx, announced)
	kept, err := b.names(ctx, b.key(timesPrefix, digest, "/"))
	if err != nil {
		return b.failed("what is left of package "+digest+" cannot be seen", err)
	}
	b.tidy(ctx, kept...)
	return nil
}

// parts are the pieces of a package that S3 has.
type parts struct {
	*bucket
	digest, id string
	list       []minio.CompletePart
}

func (b *bucket) stage(ctx context.Context, digest string, content io.Reader) (staged, error) {
	id, err := b.s3.NewMultipartUpload(ctx, b.name, b.object(digest), minio.PutObjectOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return nil, b.failed("package "+digest+" cannot be written", err)
	}
	p := &parts{bucket: b, digest: digest, id: id}
	if err := p.send(ctx, content); err != nil {
		p.discard(ctx)
		return nil, err
	}
	return p, nil
}

// send sends all of the content: of an empty one a part as well.
func (p *parts) send(ctx context.Context, content io.Reader) error {
	var piece bytes.Buffer
	piece.Grow(partBytes + bytes.MinRead)
	for last := false; !last; piece.Reset() {
		n, err := io.CopyN(&piece, content, partBytes)
		if last = errors.Is(err, io.EOF); err != nil && !last {
			return err
		}
		if n == 0 && len(p.list) > 0 {
			return nil
		}
		if len(p.list) == maxParts {
			return fmt.Errorf("%w: a bucket takes %d bytes at most", ErrTooLarge, partBytes*maxParts)
		}
		if err := p.sendPart(ctx, piece.Bytes()); err != nil {
			return p.failed("package "+p.digest+" cannot be written", err)
		}
	}
	return nil
}

func (p *parts) sendPart(ctx context.Context, piece []byte) error {
	part, err := p.s3.PutObjectPart(ctx, p.name, p.object(p.digest), p.id, len(p.list)+1, bytes.NewReader(piece), int64(len(piece)),
		minio.PutObjectPartOptions{Sha256Hex: sumOf(piece), DisableContentSha256: true})
	if err != nil {
		return err
	}
	p.list = append(p.list, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	return nil
}

func (p *parts) appear(ctx context.Context, at time.Time) error {
	kept, err := p.note(ctx, Package{SHA256: p.digest, StoredAt: at, UsedAt: at})
	if err != nil {
		return err
	}
	if _, err := p.s3.CompleteMultipartUpload(ctx, p.name, p.object(p.digest), p.id, p.list, minio.PutObjectOptions{}); err != nil {
		return p.failed("package "+p.digest+" cannot be written", err)
	}
	failpoint.Hit("packages.renamed")
	p.tidyTimes(ctx, kept)
	return nil
}

func (p *parts) discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	_ = p.s3.AbortMultipartUpload(ctx, p.name, p.object(p.digest), p.id)
}
