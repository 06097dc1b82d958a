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

// The objects under the prefix of a bucket. Packages are sha256/{digest}. times/{digest}/{stored}-{used} records when a
// package was stored and last used, and removing/{digest}/{since}-{random} announces its removal. The latter two are
// empty: a listing of names contains all information.
const (
	timesPrefix    = "times/"
	removingPrefix = "removing/"
	probePrefix    = "probe/"
)

const (
	// partBytes is the size of the parts of an upload; each is in memory while it is sent. maxParts is S3's limit of
	// parts per upload.
	partBytes, maxParts = 16 << 20, 10_000
	// maxRequestAttempts limits how often a request is sent: a pod that cannot download from the store falls back to
	// the source.
	maxRequestAttempts = 3
	// openTimeout limits the checks of a bucket at the start; cleanupTimeout limits the removal of objects that are no
	// longer needed.
	openTimeout, cleanupTimeout = time.Minute, 10 * time.Second
	// removalTimeout limits a removal. An announcement older than removalExpiry is one of a process that has died, even
	// if the clocks of the two processes differ by a minute.
	removalTimeout, removalExpiry = 30 * time.Second, 2 * time.Minute
	// leftoverAge is the age at which an unfinished upload, or the times of a missing package, count as leftovers of a
	// killed process.
	leftoverAge = 24 * time.Hour
)

// BucketOptions locate a bucket. Its service must be strongly consistent: responses show every earlier write, as with
// Amazon S3.
type BucketOptions struct {
	// Bucket and Prefix locate the packages: the prefix is empty or ends with a slash.
	Bucket, Prefix string
	// Endpoint is the URL of an S3-compatible service. If Region is empty, the service is asked for it.
	Endpoint, Region string
}

// bucket keeps packages as objects. Several processes may use it at once.
//
// S3 cannot delete an object on the condition that it was not used in the meantime. So a process that removes a package
// first announces the removal and then reads when the package was last used; a process that uses or stores it first
// records that and then looks for announcements. Of two concurrent processes, at least one sees the other and gives up.
type bucket struct {
	s3           minio.Core
	name, prefix string
	now          func() time.Time
}

// OpenBucket opens the store in a bucket, and removes old leftovers of killed processes. It finds credentials as other
// AWS programs do: in the environment, in ~/.aws/credentials, or by the role of the pod or machine.
func OpenBucket(ctx context.Context, where BucketOptions, options Options) (*Store, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	found := credentials.NewChainCredentials([]credentials.Provider{&credentials.EnvAWS{},
		&credentials.FileAWSCredentials{}, &credentials.IAM{Client: &http.Client{Timeout: cleanupTimeout}}})
	client, err := newS3(where, found)
	if err != nil {
		return nil, err
	}
	b := &bucket{s3: minio.Core{Client: client}, name: where.Bucket, prefix: where.Prefix}
	s := newStore(b, options)
	b.now = s.now
	if given, err := found.GetWithContext(client.CredContext()); err != nil || given.AccessKeyID == "" {
		return nil, errors.Join(fmt.Errorf("no credentials for bucket %s were found: set AWS_ACCESS_KEY_ID and "+
			"AWS_SECRET_ACCESS_KEY, or run with a role", where.Bucket), err)
	}
	if err := b.prepare(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func newS3(where BucketOptions, found *credentials.Credentials) (*minio.Client, error) {
	endpoint, err := url.Parse(where.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("the endpoint of the bucket is not a URL: %w", err)
	}
	if strings.Trim(endpoint.Path, "/") != "" {
		return nil, fmt.Errorf("the endpoint %s has a path: name the service alone, and the bucket and prefix "+
			"separately", where.Endpoint)
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds: found, Secure: endpoint.Scheme == "https", Region: where.Region, MaxRetries: maxRequestAttempts,
	})
	if err != nil {
		return nil, fmt.Errorf("bucket %s at %s cannot be used: %w", where.Bucket, where.Endpoint, err)
	}
	return client, nil
}

func (b *bucket) close() error { return nil }

func (b *bucket) key(name ...string) string { return b.prefix + strings.Join(name, "") }

func (b *bucket) object(digest string) string { return b.key(storedFolder, "/", digest) }

// wrapError adds the failed operation to an error, and maps it to one of the store's errors.
func (b *bucket) wrapError(doing string, err error) error {
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

// ready checks only that the bucket exists: prepare tested the permissions at the start.
func (b *bucket) ready(ctx context.Context) error {
	exists, err := b.s3.BucketExists(ctx, b.name)
	if err != nil {
		return b.wrapError("nothing can be read", err)
	}
	if !exists {
		return fmt.Errorf("there is no bucket %s", b.name)
	}
	return nil
}

// prepare tests every operation that the store needs, and removes leftovers.
func (b *bucket) prepare(ctx context.Context) error {
	if err := b.ready(ctx); err != nil {
		return err
	}
	probe := b.key(probePrefix, rand.Text())
	if err := b.putEmpty(ctx, probe); err != nil {
		return b.wrapError("nothing can be written (s3:PutObject)", err)
	}
	if _, err := b.s3.StatObject(ctx, b.name, probe, minio.StatObjectOptions{}); err != nil {
		return b.wrapError("nothing can be read (s3:GetObject)", err)
	}
	if _, err := b.names(ctx, b.key(probePrefix)); err != nil {
		return b.wrapError("nothing can be listed (s3:ListBucket)", err)
	}
	if err := b.removeObject(ctx, probe); err != nil {
		return b.wrapError("nothing can be removed (s3:DeleteObject)", err)
	}
	if err := b.clearUploads(ctx); err != nil {
		return b.wrapError("uploads cannot be listed or aborted (s3:ListBucketMultipartUploads, "+
			"s3:AbortMultipartUpload)", err)
	}
	return b.wrapError("leftovers of killed processes cannot be removed", b.clearTimes(ctx))
}

// clearUploads aborts uploads that were started more than leftoverAge ago.
func (b *bucket) clearUploads(ctx context.Context) error {
	for upload := range b.s3.ListIncompleteUploads(ctx, b.name, b.object(""), true) {
		if upload.Err != nil {
			return upload.Err
		}
		if b.now().Sub(upload.Initiated) < leftoverAge {
			continue
		}
		if err := b.s3.AbortMultipartUpload(ctx, b.name, upload.Key, upload.UploadID); err != nil {
			return err
		}
	}
	return nil
}

// clearTimes removes the times of packages that were deleted long ago. A package's times are written before the package
// appears, so recent ones stay.
func (b *bucket) clearTimes(ctx context.Context) error {
	after := ""
	for {
		page, next, err := b.objects(ctx, 1000, after)
		if err != nil {
			return err
		}
		exists := map[string]bool{}
		for _, p := range page {
			exists[p.SHA256] = true
		}
		for t, err := range b.times(ctx, after, next) {
			if err != nil {
				return err
			}
			if exists[t.digest] || b.now().Sub(t.used) < leftoverAge {
				continue
			}
			if err := b.removeObject(ctx, t.key); err != nil {
				return err
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}

// putEmpty writes an empty object: its name contains all information.
func (b *bucket) putEmpty(ctx context.Context, key string) error {
	_, err := b.s3.PutObject(ctx, b.name, key, bytes.NewReader(nil), 0, "", sha256Of(nil),
		minio.PutObjectOptions{DisableContentSha256: true})
	return err
}

// sha256Of returns the digest for a request's signature. Without it the library signs the chunks of a stream, which not
// every service supports.
func sha256Of(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func (b *bucket) removeObject(ctx context.Context, key string) error {
	return b.s3.RemoveObject(ctx, b.name, key, minio.RemoveObjectOptions{})
}

// tryRemove removes objects that do no harm if they stay. It ignores errors, and works even if ctx has ended.
func (b *bucket) tryRemove(ctx context.Context, keys ...string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	for _, key := range keys {
		_ = b.removeObject(ctx, key)
	}
}

// names lists the keys with this prefix, sorted.
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
		return Package{}, b.wrapError("package "+digest+" cannot be read", err)
	}
	found := Package{SHA256: digest, Bytes: o.Size, StoredAt: o.LastModified.UTC(), UsedAt: o.LastModified.UTC()}
	kept, err := b.timesOf(ctx, digest)
	if err != nil {
		return Package{}, b.wrapError("the times of package "+digest+" cannot be read", err)
	}
	return kept.applyTo(found), nil
}

// open returns the time of storing only: a download does not need the time of the last use.
func (b *bucket) open(ctx context.Context, digest string) (io.ReadSeekCloser, time.Time, error) {
	object, err := b.s3.Client.GetObject(ctx, b.name, b.object(digest), minio.GetObjectOptions{})
	if err != nil {
		return nil, time.Time{}, b.wrapError("package "+digest+" cannot be read", err)
	}
	o, err := object.Stat()
	if err != nil {
		return nil, time.Time{}, errors.Join(b.wrapError("package "+digest+" cannot be read", err), object.Close())
	}
	return object, o.LastModified.UTC(), nil
}

// objects lists packages behind a digest, with S3's own modification times.
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
		page = append(page, Package{SHA256: digest, Bytes: o.Size, StoredAt: o.LastModified.UTC(),
			UsedAt: o.LastModified.UTC()})
	}
	return page, "", nil
}

func (b *bucket) list(ctx context.Context, limit int, after string) ([]Package, string, error) {
	page, next, err := b.objects(ctx, limit, after)
	if err != nil {
		return nil, "", b.wrapError("packages cannot be listed", err)
	}
	kept := map[string]times{}
	for t, err := range b.times(ctx, after, next) {
		if err != nil {
			return nil, "", b.wrapError("the times of packages cannot be listed", err)
		}
		kept[t.digest] = append(kept[t.digest], t)
	}
	for n, p := range page {
		page[n] = kept[p.SHA256].applyTo(p)
	}
	return page, next, nil
}

func (b *bucket) use(ctx context.Context, found Package) error {
	kept, err := b.recordUse(ctx, found)
	if err != nil {
		return err
	}
	if _, err := b.s3.StatObject(ctx, b.name, b.object(found.SHA256), minio.StatObjectOptions{}); err != nil {
		err = b.wrapError("package "+found.SHA256+" cannot be read", err)
		if errors.Is(err, ErrAbsent) {
			b.tryRemove(ctx, kept.key) // it was removed before the use was recorded
		}
		return err
	}
	b.removeOlderTimes(ctx, kept)
	return nil
}

// recordUse records when a package was used. It returns ErrBusy if a process that has not seen that is removing the
// package.
func (b *bucket) recordUse(ctx context.Context, p Package) (timesObject, error) {
	kept := timesObject{digest: p.SHA256, stored: p.StoredAt, used: p.UsedAt}
	kept.key = b.key(timesPrefix, kept.name())
	if err := b.putEmpty(ctx, kept.key); err != nil {
		return timesObject{}, b.wrapError("the use of package "+p.SHA256+" cannot be recorded", err)
	}
	failpoint.Hit("packages.noted")
	announced, err := b.names(ctx, b.key(removingPrefix, p.SHA256, "/"))
	if err != nil {
		return timesObject{}, b.wrapError("the removals of package "+p.SHA256+" cannot be listed", err)
	}
	for _, key := range announced {
		if since, _, _ := strings.Cut(key[strings.LastIndex(key, "/")+1:],
			"-"); b.now().Sub(parseTime(since)) < removalExpiry {
			return timesObject{}, ErrBusy
		}
		b.tryRemove(ctx, key)
	}
	return kept, nil
}

func (b *bucket) remove(ctx context.Context, digest string, allowed func(Package) error) error {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	announced := b.key(removingPrefix, digest, "/", formatTime(b.now()), "-", rand.Text())
	if err := b.putEmpty(ctx, announced); err != nil {
		return b.wrapError("the removal of package "+digest+" cannot be announced", err)
	}
	failpoint.Hit("packages.announced")
	found, err := b.stat(ctx, digest)
	if err == nil {
		err = allowed(found)
	}
	if err != nil {
		b.tryRemove(ctx, announced)
		return err
	}
	if err := b.removeObject(ctx, b.object(digest)); err != nil {
		// a request in flight may still remove it, so the announcement stays
		return b.wrapError("package "+digest+" cannot be removed", err)
	}
	failpoint.Hit("packages.deleted")
	defer b.tryRemove(ctx, announced)
	kept, err := b.names(ctx, b.key(timesPrefix, digest, "/"))
	if err != nil {
		return b.wrapError("the times of package "+digest+" cannot be listed", err)
	}
	b.tryRemove(ctx, kept...)
	return nil
}

// multipartUpload is an upload to S3 whose parts are sent but not yet completed.
type multipartUpload struct {
	*bucket
	digest, id string
	list       []minio.CompletePart
}

func (b *bucket) stage(ctx context.Context, digest string, content io.Reader) (staged, error) {
	id, err := b.s3.NewMultipartUpload(ctx, b.name, b.object(digest),
		minio.PutObjectOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return nil, b.wrapError("package "+digest+" cannot be written", err)
	}
	p := &multipartUpload{bucket: b, digest: digest, id: id}
	if err := p.send(ctx, content); err != nil {
		p.discard(ctx)
		return nil, err
	}
	return p, nil
}

// send sends all of the content in parts. Empty content is sent as one empty part.
func (p *multipartUpload) send(ctx context.Context, content io.Reader) error {
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
		part, err := p.s3.PutObjectPart(ctx, p.name, p.object(p.digest), p.id, len(p.list)+1,
			bytes.NewReader(piece.Bytes()), n,
			minio.PutObjectPartOptions{Sha256Hex: sha256Of(piece.Bytes()), DisableContentSha256: true})
		if err != nil {
			return p.wrapError("package "+p.digest+" cannot be written", err)
		}
		p.list = append(p.list, minio.CompletePart{PartNumber: part.PartNumber, ETag: part.ETag})
	}
	return nil
}

// publish records the package's times first and then completes the upload, so that no package exists without times.
func (p *multipartUpload) publish(ctx context.Context, at time.Time) error {
	kept, err := p.recordUse(ctx, Package{SHA256: p.digest, StoredAt: at, UsedAt: at})
	if err != nil {
		return err
	}
	if _, err := p.s3.CompleteMultipartUpload(ctx, p.name, p.object(p.digest), p.id, p.list,
		minio.PutObjectOptions{}); err != nil {
		return p.wrapError("package "+p.digest+" cannot be written", err)
	}
	failpoint.Hit("packages.renamed")
	p.removeOlderTimes(ctx, kept)
	return nil
}

func (p *multipartUpload) discard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	_ = p.s3.AbortMultipartUpload(ctx, p.name, p.object(p.digest), p.id)
}
