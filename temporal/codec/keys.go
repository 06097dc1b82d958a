// Package codec encrypts what Temporal keeps of releases, so that whoever reads its database or its API sees IDs, names, times and search attributes, and
// nothing that a release was asked or has answered.
//
// Each payload is sealed by AES-256-GCM under a key that has an ID. The keys stand in a folder: a file for each, named by its ID, with 32 bytes in base64
// (`openssl rand -base64 32`), and a file named current with the ID of the one that new payloads are sealed with. Without that file nothing is sealed, and
// what is sealed can be read: so all processes get the keys before one of them uses them. A Secret of Kubernetes that is mounted as a
// volume is such a folder.
package codec

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"slipway.io/slipway/reload"
)

// CurrentFile is the file of a folder of keys with the ID of the key that payloads are sealed with.
const CurrentFile = "current"

// keyBytes is the length of a key of AES-256.
const keyBytes = 32

// pause is how old what was read of the folder may be.
const pause = time.Second

// keyID is what a key may be called: it stands in the metadata of each payload, and names a file and an entry of a Secret.
var keyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Keys are the keys of a folder, as it is now.
type Keys struct {
	folder string
	files  *reload.Files[keyring]
	log    *slog.Logger

	mu sync.Mutex
	// told are the messages that were logged, and when; missing when a key was last looked for in vain.
	told, missing map[string]time.Time
}

// keyring is what a folder contained at one moment.
type keyring struct {
	current string
	ciphers map[string]cipher.AEAD
}

// OpenKeys follows a folder of keys. The error names the file that is wrong and says how to make one that is right. log may be nil.
func OpenKeys(folder string, log *slog.Logger) (*Keys, error) {
	files, err := reload.New(func() (keyring, error) { return readKeys(folder) }, pause, folder)
	if err != nil {
		return nil, err
	}
	return &Keys{folder: folder, files: files, log: log, told: map[string]time.Time{}, missing: map[string]time.Time{}}, nil
}

func readKeys(folder string) (keyring, error) {
	if info, err := os.Stat(folder); err != nil {
		return keyring{}, err
	} else if !info.IsDir() {
		return keyring{}, fmt.Errorf("%s is not a folder: want a folder with one file per key", folder)
	}
	ring := keyring{ciphers: map[string]cipher.AEAD{}}
	for _, path := range reload.Entries(folder) {
		id := filepath.Base(path)
		if id == CurrentFile {
			continue
		}
		if !keyID.MatchString(id) {
			return keyring{}, fmt.Errorf("%s is not a valid key ID: use at most 63 letters, digits, dots, dashes and underscores", path)
		}
		sealer, err := readKey(path)
		if err != nil {
			return keyring{}, err
		}
		ring.ciphers[id] = sealer
	}
	path := filepath.Join(folder, CurrentFile)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(ring.ciphers) > 0:
		return ring, nil
	case errors.Is(err, fs.ErrNotExist):
		return keyring{}, fmt.Errorf("%s has no keys: write one file per key to it, and the ID of the key for new payloads to the file %s", folder, CurrentFile)
	case err != nil:
		return keyring{}, err
	}
	ring.current = strings.TrimSpace(string(text))
	if ring.ciphers[ring.current] == nil {
		return keyring{}, fmt.Errorf("%s names the key %q, but there is no file %s", path, ring.current, filepath.Join(folder, filepath.Base(ring.current)))
	}
	return ring, nil
}

func readKey(path string) (cipher.AEAD, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(key) != keyBytes {
		return nil, fmt.Errorf("%s is not a key: want %d bytes in base64 (`openssl rand -base64 %d`)", path, keyBytes, keyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// current is the key that payloads are sealed with, and its ID; nil when none is, since the keys are to be known to all processes first.
func (k *Keys) current() (id string, sealer cipher.AEAD) {
	ring := k.read(k.files.Get)
	return ring.current, ring.ciphers[ring.current]
}

// find is the key of an ID; nil when the folder has none. Another process may have been given a new one first, so that the folder is looked at again.
func (k *Keys) find(id string) cipher.AEAD {
	if sealer := k.read(k.files.Get).ciphers[id]; sealer != nil {
		return sealer
	}
	if k.lately(k.missing, id, pause) {
		return nil
	}
	return k.read(k.files.Again).ciphers[id]
}

// read is what the folder contains. While it can't be used what it contained before is.
func (k *Keys) read(get func() (keyring, error)) keyring {
	ring, err := get()
	if err != nil {
		k.tell(fmt.Errorf("the payload keys are invalid, still using the previous ones: %w", err))
	}
	return ring
}

// toldAgain is how soon the same message is logged again at the earliest.
const toldAgain = time.Minute

// tell logs what is wrong, but not again and again.
func (k *Keys) tell(err error) {
	if k.log != nil && !k.lately(k.told, err.Error(), toldAgain) {
		k.log.Error("encrypted payloads", "error", err)
	}
}

// mostKept bounds what is remembered of messages and keys: payloads of others may name any.
const mostKept = 1000

// lately says whether this was asked about a text within the last while, and remembers that it was.
func (k *Keys) lately(kept map[string]time.Time, text string, within time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if was, is := kept[text]; is && now.Sub(was) < within {
		return true
	}
	if len(kept) >= mostKept {
		clear(kept)
	}
	kept[text] = now
	return false
}

// Err says what is wrong with the folder now.
func (k *Keys) Err() error {
	_, err := k.files.Get()
	return err
}
