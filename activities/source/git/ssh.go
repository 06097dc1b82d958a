package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"slipway.io/slipway/release/source"
)

// patience is how long an ssh server may take in all.
const patience = 30 * time.Second

// overSSH lists the references of a repository by ssh. The host is held against the known hosts before the key is used.
func (a Access) overSSH(ctx context.Context, repository source.Repository) (*packp.AdvRefs, error) {
	config, err := a.config(repository)
	if err != nil {
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	connection, err := a.Client.Dial(bounded, "tcp", repository.Address())
	if err != nil {
		return nil, a.Client.Trouble(ctx, err)
	}
	defer connection.Close()
	stop := context.AfterFunc(bounded, func() { _ = connection.Close() })
	defer stop()
	secured, channels, requests, err := ssh.NewClientConn(connection, repository.Address(), config)
	if err != nil {
		err = handshake(repository, err)
	} else {
		client := ssh.NewClient(secured, channels, requests)
		defer client.Close()
		var refs *packp.AdvRefs
		if refs, err = list(client, repository); err == nil {
			return refs, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case bounded.Err() != nil:
		return nil, temporary("the ssh server did not answer within %s", patience)
	}
	return nil, err
}

func (a Access) config(repository source.Repository) (*ssh.ClientConfig, error) {
	if a.Key == nil {
		return nil, refuse("a repository by ssh needs a key: name a Secret with ssh-privatekey and known_hosts by build.credentials in the catalogue")
	}
	signer, err := ssh.ParsePrivateKey(a.Key.PrivateKey)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, refuse("the private key has a passphrase: put a key without one into the Secret")
	case err != nil:
		return nil, refuse("the private key in the Secret can't be read")
	}
	known, err := hosts(a.Key.KnownHosts)
	if err != nil {
		return nil, err
	}
	algorithms := known.HostKeyAlgorithms(repository.Address())
	if len(algorithms) == 0 {
		return nil, refuse("known_hosts in the Secret has no key of host %s: add it, after you have compared it", repository.Address())
	}
	return &ssh.ClientConfig{User: repository.Login, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: known.HostKeyCallback(),
		HostKeyAlgorithms: algorithms, ClientVersion: "SSH-2.0-slipway"}, nil
}

// hosts reads the lines of a known_hosts file: the library reads files only.
func hosts(lines []byte) (*knownhosts.HostKeyDB, error) {
	file, err := os.CreateTemp("", "slipway-known-hosts-*")
	if err != nil {
		return nil, err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(append(bytes.TrimRight(lines, "\n"), '\n'))
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	known, err := knownhosts.NewDB(file.Name())
	if err != nil {
		return nil, refuse("known_hosts in the Secret can't be read: write it as ssh-keyscan prints it")
	}
	return known, nil
}

// handshake is what an ssh handshake has failed of.
func handshake(repository source.Repository, err error) error {
	switch {
	case knownhosts.IsHostKeyChanged(err):
		return refuse("host %s shows another key than known_hosts in the Secret has: find out why before you change it", repository.Address())
	case knownhosts.IsHostUnknown(err):
		return refuse("known_hosts in the Secret has no key of host %s", repository.Address())
	case strings.Contains(err.Error(), "unable to authenticate"): // the library has no type for it
		return refuse("host %s does not accept the key of user %s: check the Secret, and that the key may read the repository", repository.Address(), repository.Login)
	case strings.Contains(err.Error(), "no common algorithm"):
		return refuse("host %s has no key of a kind that known_hosts in the Secret has, or no other algorithm in common", repository.Address())
	}
	return temporary("the ssh handshake with %s failed", repository.Address())
}

// list asks for the references, and takes its leave.
func list(client *ssh.Client, repository source.Repository) (*packp.AdvRefs, error) {
	session, err := client.NewSession()
	if err != nil {
		return nil, temporary("the ssh server gives no session")
	}
	defer session.Close()
	in, errIn := session.StdinPipe()
	out, errOut := session.StdoutPipe()
	told := &beginning{}
	session.Stderr = told
	if err := errors.Join(errIn, errOut, session.Start(service+" "+quoted(repository.Path))); err != nil {
		return nil, temporary("the ssh server runs no command")
	}
	refs, err := decode(io.LimitReader(out, longestList))
	_, _ = io.WriteString(in, "0000") // nothing is wanted of it
	_ = in.Close()
	if err != nil || len(refs.References) == 0 {
		var failed *ssh.ExitError
		switch ended := session.Wait(); {
		case errors.As(ended, &failed):
			return nil, refuse("the ssh server does not give this repository: check its path, and that the key may read it%s", told.clause())
		case ended != nil:
			return nil, temporary("the ssh server ended the connection")
		}
	}
	return refs, err
}

// quoted is a path as one word of the command that an ssh server gets, the way Git itself quotes it.
func quoted(path string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
}

// beginning keeps the beginning of what a server tells.
type beginning struct{ text []byte }

func (b *beginning) Write(text []byte) (int, error) {
	b.text = append(b.text, text[:min(len(text), 300-len(b.text))]...)
	return len(text), nil
}

func (b *beginning) clause() string {
	text := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(string(b.text), ""), func(r rune) bool { return r < ' ' || r == 0x7f }), " ")
	if text == "" {
		return ""
	}
	return " (it says: " + text + ")"
}
