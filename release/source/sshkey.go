package source

import (
	"slipway.io/slipway/release/failure"
)

// The keys of a Secret that opens Git repositories by ssh: the first is the one of Secrets of type
// kubernetes.io/ssh-auth.
const (
	keyPrivateKey = "ssh-privatekey"
	keyKnownHosts = "known_hosts"
)

// SSHKey opens Git repositories by ssh, only on the hosts in its known hosts.
type SSHKey struct {
	PrivateKey []byte
	// KnownHosts are the lines of a known_hosts file.
	KnownHosts []byte
}

// ParseSSHKey reads a Secret's data; secret is its namespace and name, for errors. Known hosts are required to
// authenticate the server.
func ParseSSHKey(secret string, data map[string][]byte) (SSHKey, error) {
	key := SSHKey{PrivateKey: data[keyPrivateKey], KnownHosts: data[keyKnownHosts]}
	switch {
	case len(key.PrivateKey) == 0:
		return SSHKey{}, failure.New(failure.Refused,
			"Secret %s: the key %s is missing: a repository by ssh needs a private key", secret, keyPrivateKey)
	case len(key.KnownHosts) == 0:
		return SSHKey{}, failure.New(failure.Refused,
			"Secret %s: the key %s is missing: put the host's public keys there, as `ssh-keyscan` prints them, "+
				"after you have verified them", secret, keyKnownHosts)
	}
	return key, nil
}

// String returns no secret, so that a key cannot be printed or logged by mistake.
func (SSHKey) String() string { return "an ssh key" }

// GoString returns String, for %#v.
func (k SSHKey) GoString() string { return k.String() }

// MarshalText returns String, for JSON and structured logs: keys are never serialised.
func (k SSHKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }
