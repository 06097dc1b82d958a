package source

import (
	"slipway.io/slipway/release/failure"
)

// Keys of a Secret that opens Git repositories by ssh: the first is that of Secrets of type kubernetes.io/ssh-auth.
const (
	keyPrivateKey = "ssh-privatekey"
	keyKnownHosts = "known_hosts"
)

// SSHKey opens Git repositories by ssh, on the hosts that its known hosts name and on no other.
type SSHKey struct {
	PrivateKey []byte
	// KnownHosts are the lines of a known_hosts file.
	KnownHosts []byte
}

// ParseSSHKey reads a Secret's data; secret is its namespace and name, for errors. Without known hosts nobody could tell who answers.
func ParseSSHKey(secret string, data map[string][]byte) (SSHKey, error) {
	key := SSHKey{PrivateKey: data[keyPrivateKey], KnownHosts: data[keyKnownHosts]}
	switch {
	case len(key.PrivateKey) == 0:
		return SSHKey{}, failure.New(failure.Refused, "Secret %s: the key %s is missing: a repository by ssh is opened by a private key", secret, keyPrivateKey)
	case len(key.KnownHosts) == 0:
		return SSHKey{}, failure.New(failure.Refused, "Secret %s: the key %s is missing: put the host's public keys there, as `ssh-keyscan` prints them and as you "+
			"have compared them", secret, keyKnownHosts)
	}
	return key, nil
}

// String shows no secret, so that a key can't be printed or logged by mistake.
func (SSHKey) String() string { return "an ssh key" }

// GoString is String, for %#v.
func (k SSHKey) GoString() string { return k.String() }

// MarshalText is String, for JSON and structured logs: keys are never serialised.
func (k SSHKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
