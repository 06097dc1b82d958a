// Package codec encrypts what Temporal stores about releases. A reader of its database or API sees IDs, names, times
// and search attributes, but no inputs or results of releases.
//
// Each payload is encrypted by AES-256-GCM with a key that has an ID. The keys are in a folder: one file per key, named
// by its ID, with 32 bytes in base64 (`openssl rand -base64 32`), and a file named current with the ID of the key for
// new payloads. Without that file nothing is encrypted, but encrypted payloads can be read: all processes get the keys
// before one of them uses them. A Kubernetes Secret mounted as a volume is such a folder.
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

// CurrentFile is the file in a key folder with the ID of the key for new payloads.
const CurrentFile = "current"

// keyBytes is the length of a key of AES-256.
const keyBytes = 32

// maxAge is the maximum age of the cached folder content.
const maxAge = time.Second

// keyID matches valid key IDs: an ID is in the metadata of each payload, and names a file and an entry of a Secret.
var keyID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Keys are the current keys of a folder.
type Keys struct {
	folder string
	files  *reload.Files[keyring]
	log    *slog.Logger

	mu sync.Mutex
	// logged are the logged messages and their times; missing are the IDs of keys not found and when they were looked
	// up.
	logged, missing map[string]time.Time
}

// keyring is the content of a folder at one moment.
type keyring struct {
	current string
	ciphers map[string]cipher.AEAD
}

// OpenKeys follows a folder of keys. The error names the invalid file and how to correct it. log may be nil.
func OpenKeys(folder string, log *slog.Logger) (*Keys, error) {
	files, err := reload.New(func() (keyring, error) { return readKeys(folder) }, maxAge, folder)
	if err != nil {
		return nil, err
	}
	return &Keys{folder: folder, files: files, log: log, logged: map[string]time.Time{},
		missing: map[string]time.Time{}}, nil
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
			return keyring{}, fmt.Errorf("%s is not a valid key ID: use at most 63 letters, digits, dots, dashes and "+
				"underscores", path)
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
		return keyring{}, fmt.Errorf("%s has no keys: write one file per key to it, and the ID of the key for new "+
			"payloads to the file %s", folder, CurrentFile)
	case err != nil:
		return keyring{}, err
	}
	ring.current = strings.TrimSpace(string(text))
	if ring.ciphers[ring.current] == nil {
		return keyring{}, fmt.Errorf("%s names the key %q, but there is no file %s", path, ring.current,
			filepath.Join(folder, filepath.Base(ring.current)))
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
		return nil, fmt.Errorf("%s is not a key: want %d bytes in base64 (`openssl rand -base64 %d`)", path, keyBytes,
			keyBytes)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// current returns the key for new payloads and its ID; nil if there is none, as long as the keys are being distributed
// to all processes.
func (k *Keys) current() (id string, sealer cipher.AEAD) {
	ring := k.read(k.files.Get)
	return ring.current, ring.ciphers[ring.current]
}

// find returns the key with this ID; nil if the folder has none. Another process may have received a new key first, so
// an unknown ID makes it read the folder again.
func (k *Keys) find(id string) cipher.AEAD {
	if sealer := k.read(k.files.Get).ciphers[id]; sealer != nil {
		return sealer
	}
	if k.seenWithin(k.missing, id, maxAge) {
		return nil
	}
	return k.read(k.files.Again).ciphers[id]
}

// read returns the folder's content, or the previous content while the folder is invalid.
func (k *Keys) read(get func() (keyring, error)) keyring {
	ring, err := get()
	if err != nil {
		k.logError(fmt.Errorf("the payload keys are invalid, still using the previous ones: %w", err))
	}
	return ring
}

// logInterval is the minimum time between two log entries of the same message.
const logInterval = time.Minute

// logError logs an error, at most once per logInterval.
func (k *Keys) logError(err error) {
	if k.log != nil && !k.seenWithin(k.logged, err.Error(), logInterval) {
		k.log.Error("encrypted payloads", "error", err)
	}
}

// maxRemembered bounds the remembered messages and keys: foreign payloads may contain any ID.
const maxRemembered = 1000

// seenWithin reports whether text was recorded within the given time, and records it.
func (k *Keys) seenWithin(kept map[string]time.Time, text string, within time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if last, is := kept[text]; is && now.Sub(last) < within {
		return true
	}
	if len(kept) >= maxRemembered {
		clear(kept)
	}
	kept[text] = now
	return false
}

// Err returns what is currently wrong with the folder.
func (k *Keys) Err() error {
	_, err := k.files.Get()
	return err
}
