package start

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"strings"
	"time"
)

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newID is an ID that no release has: "<prefix>-<yyyymmddhhmmss>-<5 random letters and digits>".
func (s *Start) newID(now time.Time) string {
	return s.prefix() + "-" + now.Format("20060102150405") + "-" + strings.ToLower(rand.Text()[:5])
}

// keyedID is the ID that belongs to an Idempotency-Key, so that two requests at once make one release. after is the release that the key
// made more than 30 days ago, if any: the key then stands for a new one.
func (s *Start) keyedID(after string) string {
	digest := sha256.Sum256([]byte(s.Key + "\n" + s.Subject + "\n" + after))
	return s.prefix() + "-" + lowerBase32.EncodeToString(digest[:10])
}

// prefix is the part of an ID that people recognise: a name, as far as it fits and as names of objects are spelled.
func (s *Start) prefix() string {
	const longest = 40
	name := strings.ToLower(s.Prefix)
	return strings.TrimRight(name[:min(len(name), longest)], "-.")
}
