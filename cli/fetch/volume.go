package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"slipway.io/slipway/activities/source/archive"
	"slipway.io/slipway/release/source"
)

// The names in the volume's folder, in addition to source.FolderContent.
const (
	// markerFile is the file that describes source.FolderContent. It is written last.
	markerFile = ".slipway-content.json"
	// workDir holds incomplete files. Each run removes those of the previous one.
	workDir        = ".slipway-fetch"
	downloadFile   = workDir + "/package"
	unpackedDir    = workDir + "/content"
	replacedDir    = workDir + "/replaced"
	markerTempFile = workDir + "/marker"
)

// packageInfo describes the package in a volume.
type packageInfo struct {
	SHA256 string `json:"sha256"`
	// File is the name of the single file if the package is not unpacked.
	File string `json:"file,omitempty"`
	// Boot identifies the boot of the node. A node crash may have corrupted files, so they are written again after a
	// reboot.
	Boot string `json:"boot,omitempty"`
}

// bootID identifies the current boot of the node; "" if the system has no such ID.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// volume is the folder that the init container shares with the service's container. os.Root keeps all access inside it,
// even through symbolic links.
type volume struct{ *os.Root }

func openVolume(folder string) (volume, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return volume{}, fmt.Errorf("cannot create the package folder: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return volume{}, fmt.Errorf("cannot open the package folder: %w", err)
	}
	return volume{root}, nil
}

// has reports whether an earlier run has already written this package.
func (v volume) has(asked packageInfo) bool {
	text, err := v.ReadFile(markerFile)
	if err != nil {
		return false
	}
	var found packageInfo
	if json.Unmarshal(text, &found) != nil || found != asked {
		return false
	}
	stat, err := v.Lstat(source.FolderContent)
	return err == nil && stat.IsDir()
}

// prepare removes the files of an interrupted run and creates the file for the download.
func (v volume) prepare() (*os.File, error) {
	if err := v.clean(); err != nil {
		return nil, err
	}
	err := v.Mkdir(workDir, 0o700)
	var into *os.File
	if err == nil {
		into, err = v.OpenFile(downloadFile, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot write to the package folder: %w", err)
	}
	return into, nil
}

// clean removes incomplete files. Archives may contain folders without write permission, so it restores the permissions
// first.
func (v volume) clean() error {
	unlock := func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return v.Chmod(name, 0o700)
		}
		return err
	}
	// RemoveAll reports folders whose permissions could not be changed.
	_ = fs.WalkDir(v.FS(), workDir, unlock)
	if err := v.RemoveAll(workDir); err != nil {
		return fmt.Errorf("cannot remove the files of an earlier run: %w", err)
	}
	return nil
}

// install creates the content folder from a verified package and returns a summary for the user.
func (v volume) install(ctx context.Context, is packageInfo, from *os.File, limits source.Limits) (string, error) {
	if err := v.Mkdir(unpackedDir, 0o700); err != nil {
		return "", fmt.Errorf("cannot write to the package folder: %w", err)
	}
	summary := "the package, as the file " + is.File
	if is.File != "" {
		if err := v.keepAsFile(is.File, from); err != nil {
			return "", fmt.Errorf("cannot store the package as a file: %w", err)
		}
	} else {
		info, err := v.unpack(ctx, from, limits)
		if err != nil {
			return "", fmt.Errorf("cannot unpack the package sha256:%s: %w", is.SHA256, err)
		}
		summary = fmt.Sprintf("%d entries with %d bytes, from a package in format %s", info.Entries, info.Bytes,
			info.Format)
	}
	if err := v.publish(is); err != nil {
		return "", fmt.Errorf("cannot move the package into place: %w", err)
	}
	return summary, nil
}

func (v volume) unpack(ctx context.Context, from *os.File, limits source.Limits) (archive.Info, error) {
	folder, err := v.OpenRoot(unpackedDir)
	if err != nil {
		return archive.Info{}, err
	}
	defer folder.Close()
	return archive.Unpack(ctx, from, folder, limits)
}

// keepAsFile makes the package itself the only file of the folder, readable by all users.
func (v volume) keepAsFile(name string, from *os.File) error {
	return errors.Join(from.Chmod(0o644), v.Rename(downloadFile, path.Join(unpackedDir, name)))
}

// publish swaps the folders by renaming. If it is killed in between, there is no marker, and the next run starts from
// the beginning.
func (v volume) publish(is packageInfo) error {
	if err := v.Chmod(unpackedDir, 0o755); err != nil {
		return err
	}
	if err := v.Remove(markerFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := v.Rename(source.FolderContent, replacedDir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := v.Rename(unpackedDir, source.FolderContent); err != nil {
		return err
	}
	text, err := json.Marshal(is)
	if err != nil {
		return err
	}
	if err := v.WriteFile(markerTempFile, text, 0o644); err != nil {
		return err
	}
	return v.Rename(markerTempFile, markerFile)
}
