package archive_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"slipway.io/slipway/activities/source/archive"
	"slipway.io/slipway/release/source"
)

// FuzzUnpack unpacks arbitrary archives. Nothing is written outside the folder, no link leads out of it, the written
// bytes stay within the limit, and Check returns the same result as Unpack.
func FuzzUnpack(f *testing.F) {
	for _, c := range corpus() {
		if len(c.archive) < 64<<10 {
			f.Add(c.archive)
		}
	}
	for _, content := range validArchives() {
		f.Add(content)
	}
	f.Add(tarOf(appParts()...))
	f.Add(gzipOf(tarOf(appParts()...)))
	f.Add(zstdOf(tarOf(appParts()...)))
	limits := source.Limits{Bytes: 1 << 20, UnpackedBytes: 64 << 10, Entries: 100}
	f.Fuzz(func(t *testing.T, content []byte) {
		b := newSandbox(t, content)
		checked, refused := archive.Check(context.Background(), b.file, limits)
		info, err := b.unpack(t, limits)
		if refused == nil {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, refused.Error())
		}
		require.Equal(t, checked, info)
		entries, bytes := measure(t, b.folder())
		require.LessOrEqual(t, bytes, limits.UnpackedBytes)
		require.LessOrEqual(t, entries, limits.Entries)
		if err == nil {
			require.Equal(t, info.Entries, entries)
			require.Equal(t, info.Bytes, bytes)
		}
	})
}

// measure walks the unpacked files, fails on forbidden ones, and counts entries and bytes.
func measure(t *testing.T, folder string) (entries int, bytes int64) {
	linked := []os.FileInfo{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		entries++
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			return nil
		case d.Type()&fs.ModeSymlink != 0:
			target, err := filepath.EvalSymlinks(path)
			if err == nil {
				require.True(t, target == folder || strings.HasPrefix(target, folder+"/"), "%s leads to %s", path,
					target)
			}
			return nil
		}
		require.True(t, d.Type().IsRegular(), "%s is a %s", path, info.Mode())
		require.Zero(t, info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky), path)
		for _, other := range linked {
			if os.SameFile(other, info) {
				return nil
			}
		}
		linked = append(linked, info)
		bytes += info.Size()
		return nil
	}))
	return entries, bytes
}
