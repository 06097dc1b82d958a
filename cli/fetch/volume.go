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

// The names in the volume's folder, besides source.FolderContent.
const (
	// marker says what source.FolderContent has. It is written last.
	marker = ".slipway-content.json"
	// work is where a run keeps what isn't complete, of which nothing outlives the next run.
	work     = ".slipway-fetch"
	packed   = work + "/package"
	unpacked = work + "/content"
	replaced = work + "/replaced"
	marking  = work + "/marker"
)

// contents say what a volume has.
type contents struct {
	SHA256 string `json:"sha256"`
	// File is the name of the one file of a package that is kept whole.
	File string `json:"file,omitempty"`
	// Boot is the start of the node. Files written before a crash of the node may be torn, and are written anew.
	Boot string `json:"boot,omitempty"`
}

// bootID names the start of the node; "": the system doesn't tell.
func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// volume is the folder that the init container and the service's container share. Nothing is done outside it, whatever links it has.
type volume struct{ *os.Root }

func openVolume(folder string) (volume, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return volume{}, fmt.Errorf("can't make the folder for the package: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return volume{}, fmt.Errorf("can't open the folder for the package: %w", err)
	}
	return volume{root}, nil
}

// has says whether an earlier run has done all.
func (v volume) has(asked contents) bool {
	text, err := v.ReadFile(marker)
	if err != nil {
		return false
	}
	var found contents
	if json.Unmarshal(text, &found) != nil || found != asked {
		return false
	}
	stat, err := v.Lstat(source.FolderContent)
	return err == nil && stat.IsDir()
}

// begin removes what a killed run has left, and makes the file for the download.
func (v volume) begin() (*os.File, error) {
	if err := v.clean(); err != nil {
		return nil, err
	}
	err := v.Mkdir(work, 0o700)
	var into *os.File
	if err == nil {
		into, err = v.OpenFile(packed, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("can't write into the folder for the package: %w", err)
	}
	return into, nil
}

// clean removes the unfinished. Archives may have locked folders, which only root empties as they are.
func (v volume) clean() error {
	unlock := func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return v.Chmod(name, 0o700)
		}
		return err
	}
	// What can't be unlocked, RemoveAll reports.
	_ = fs.WalkDir(v.FS(), work, unlock)
	if err := v.RemoveAll(work); err != nil {
		return fmt.Errorf("can't remove what an earlier run has left: %w", err)
	}
	return nil
}

// fill makes content of a package whose digest is right, and returns what there is to tell of it.
func (v volume) fill(ctx context.Context, is contents, from *os.File, limits source.Limits) (string, error) {
	if err := v.Mkdir(unpacked, 0o700); err != nil {
		return "", fmt.Errorf("can't write into the folder for the package: %w", err)
	}
	told := "the package, as the file " + is.File
	if is.File != "" {
		if err := v.keep(is.File, from); err != nil {
			return "", fmt.Errorf("can't keep the package as a file: %w", err)
		}
	} else {
		info, err := v.unpack(ctx, from, limits)
		if err != nil {
			return "", fmt.Errorf("can't unpack the package sha256:%s: %w", is.SHA256, err)
		}
		told = fmt.Sprintf("%d entries with %d bytes, from a package in format %s", info.Entries, info.Bytes, info.Format)
	}
	if err := v.publish(is); err != nil {
		return "", fmt.Errorf("can't put the package into place: %w", err)
	}
	return told, nil
}

func (v volume) unpack(ctx context.Context, from *os.File, limits source.Limits) (archive.Info, error) {
	folder, err := v.OpenRoot(unpacked)
	if err != nil {
		return archive.Info{}, err
	}
	defer folder.Close()
	return archive.Unpack(ctx, from, folder, limits)
}

// keep makes the package itself the only file, which everybody may read.
func (v volume) keep(name string, from *os.File) error {
	return errors.Join(from.Chmod(0o644), v.Rename(packed, path.Join(unpacked, name)))
}

// publish swaps the folders by renaming. A run that is killed in between leaves no marker, so that the next one begins anew.
func (v volume) publish(is contents) error {
	if err := v.Chmod(unpacked, 0o755); err != nil {
		return err
	}
	if err := v.Remove(marker); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := v.Rename(source.FolderContent, replaced); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := v.Rename(unpacked, source.FolderContent); err != nil {
		return err
	}
	text, err := json.Marshal(is)
	if err != nil {
		return err
	}
	if err := v.WriteFile(marking, text, 0o644); err != nil {
		return err
	}
	return v.Rename(marking, marker)
}
