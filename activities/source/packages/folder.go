package packages

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"slipway.io/slipway/activities/source/space"
	"slipway.io/slipway/failpoint"
)

// The folders of a store. The modification time of a package's file is the time it was stored, so that Last-Modified
// never changes. The modification time of the file of the same name in the folder used is the time of its last use.
const (
	storedFolder  = "sha256"
	usedFolder    = "used"
	partialFolder = "tmp"
	lockName      = "lock"
)

// folder keeps packages as files: each is written to a temporary file, synced and renamed. One process uses a folder at
// a time.
type folder struct {
	root *os.Root
	lock *os.File
}

// Open opens the store in a folder, creates the folder if it is absent, and removes leftovers of a killed process.
func Open(name string, options Options) (*Store, error) {
	if err := os.MkdirAll(name, 0o750); err != nil {
		return nil, fmt.Errorf("the folder of packages cannot be created: %w", err)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("the folder of packages cannot be opened: %w", err)
	}
	f := &folder{root: root}
	if err := f.prepare(name); err != nil {
		return nil, errors.Join(err, f.close())
	}
	s := newStore(f, options)
	if options.TempBytes > 0 {
		s.space = space.New(options.TempBytes)
	}
	return s, nil
}

func (f *folder) close() error {
	if f.lock != nil {
		return errors.Join(unlockFile(f.lock), f.lock.Close(), f.root.Close())
	}
	return f.root.Close()
}

func (f *folder) prepare(name string) error {
	var err error
	if f.lock, err = f.root.OpenFile(lockName, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return fmt.Errorf("the folder of packages cannot be written: %w", err)
	}
	if err := lockFile(f.lock); err != nil {
		return fmt.Errorf("another process serves the packages in %s: end it first, or choose another folder: %w", name,
			err)
	}
	for _, name := range []string{storedFolder, usedFolder, partialFolder} {
		if err := f.root.Mkdir(name, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("the folder of packages cannot be written: %w", err)
		}
	}
	if err := f.sync("."); err != nil {
		return err
	}
	return f.clear()
}

// clear removes partial uploads, and the times of use of deleted packages.
func (f *folder) clear() error {
	uploads, err := f.names(partialFolder)
	if err != nil {
		return err
	}
	for _, name := range uploads {
		if err := f.root.RemoveAll(path.Join(partialFolder, name)); err != nil {
			return fmt.Errorf("a partial upload cannot be removed: %w", err)
		}
	}
	uses, err := f.names(usedFolder)
	if err != nil {
		return err
	}
	for _, name := range uses {
		if _, err := f.root.Lstat(path.Join(storedFolder, name)); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := f.root.Remove(path.Join(usedFolder, name)); err != nil {
			return fmt.Errorf("the time of use of a deleted package cannot be removed: %w", err)
		}
	}
	return nil
}

// names lists the files of a folder, sorted.
func (f *folder) names(of string) ([]string, error) {
	opened, err := f.root.Open(of)
	if err != nil {
		return nil, fmt.Errorf("the folder of packages cannot be read: %w", err)
	}
	defer opened.Close()
	names, err := opened.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("the folder of packages cannot be read: %w", err)
	}
	slices.Sort(names)
	return names, nil
}

func (f *folder) sync(name string) error {
	opened, err := f.root.Open(name)
	if err != nil {
		return fmt.Errorf("the folder of packages cannot be read: %w", err)
	}
	defer opened.Close()
	return failed("the folder of packages cannot be synced", opened.Sync())
}

func (f *folder) stat(_ context.Context, digest string) (Package, error) {
	info, err := f.root.Lstat(path.Join(storedFolder, digest))
	if err != nil {
		return Package{}, unreadable(digest, err)
	}
	found := Package{SHA256: digest, Bytes: info.Size(), StoredAt: info.ModTime().UTC(), UsedAt: info.ModTime().UTC()}
	use, err := f.root.Lstat(path.Join(usedFolder, digest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return found, nil
	case err != nil:
		return Package{}, fmt.Errorf("the last use of package %s cannot be read: %w", digest, err)
	}
	if use.ModTime().After(found.UsedAt) {
		found.UsedAt = use.ModTime().UTC()
	}
	return found, nil
}

func (f *folder) open(_ context.Context, digest string) (io.ReadSeekCloser, time.Time, error) {
	file, err := f.root.Open(path.Join(storedFolder, digest))
	if err != nil {
		return nil, time.Time{}, unreadable(digest, err)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, time.Time{}, errors.Join(unreadable(digest, err), file.Close())
	}
	return file, info.ModTime().UTC(), nil
}

func unreadable(digest string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return ErrAbsent
	}
	return fmt.Errorf("package %s cannot be read: %w", digest, err)
}

func (f *folder) list(ctx context.Context, limit int, after string) ([]Package, string, error) {
	names, err := f.names(storedFolder)
	if err != nil {
		return nil, "", err
	}
	found := []Package{}
	for _, name := range names {
		if name <= after || !ValidDigest(name) {
			continue
		}
		if len(found) == limit {
			return found, found[limit-1].SHA256, nil
		}
		one, err := f.stat(ctx, name)
		if errors.Is(err, ErrAbsent) {
			continue // deleted in the meantime
		}
		if err != nil {
			return nil, "", err
		}
		found = append(found, one)
	}
	return found, "", nil
}

func (f *folder) use(_ context.Context, found Package) error {
	name := path.Join(usedFolder, found.SHA256)
	file, err := f.root.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(f.root.Chtimes(name, found.UsedAt, found.UsedAt), file.Sync(), file.Close(),
			f.sync(usedFolder))
	}
	return failed("the use of package "+found.SHA256+" cannot be recorded", err)
}

func (f *folder) remove(ctx context.Context, digest string, allowed func(Package) error) error {
	found, err := f.stat(ctx, digest)
	if err != nil {
		return err
	}
	if err := allowed(found); err != nil {
		return err
	}
	if err := f.root.Remove(path.Join(storedFolder, digest)); err != nil {
		return fmt.Errorf("package %s cannot be deleted: %w", digest, err)
	}
	if err := f.sync(storedFolder); err != nil {
		return err
	}
	failpoint.Hit("packages.deleted")
	if err = f.root.Remove(path.Join(usedFolder, digest)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return failed("the time of use of package "+digest+" cannot be removed", err)
}

// upload is a temporary file that is not yet renamed to its digest.
type upload struct {
	*folder
	name, digest string
}

func (f *folder) stage(ctx context.Context, digest string, content io.Reader) (staged, error) {
	u := upload{f, path.Join(partialFolder, digest+"."+rand.Text()), digest}
	file, err := f.root.OpenFile(u.name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, failed("package "+digest+" cannot be written", err)
	}
	// The file's own ReadFrom uses smaller pieces.
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, content, make([]byte, 256<<10))
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		u.discard(ctx)
		return nil, failed("package "+digest+" cannot be written", err)
	}
	return u, nil
}

func (u upload) publish(_ context.Context, at time.Time) error {
	err := u.root.Chtimes(u.name, at, at)
	if err == nil {
		err = u.root.Rename(u.name, path.Join(storedFolder, u.digest))
	}
	if err != nil {
		return failed("package "+u.digest+" cannot be written", err)
	}
	failpoint.Hit("packages.renamed")
	return u.sync(storedFolder)
}

func (u upload) discard(context.Context) { _ = u.root.Remove(u.name) }

// ready creates and removes a file.
func (f *folder) ready(context.Context) error {
	name := path.Join(partialFolder, "ready."+rand.Text())
	file, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return failed("the folder of packages cannot be written", err)
	}
	return errors.Join(file.Close(), f.root.Remove(name))
}

// failed adds the failed operation to an error, and ErrFull if the disk or a quota has no space left.
func failed(doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		err = fmt.Errorf("%w: %w", ErrFull, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
