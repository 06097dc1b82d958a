// Package git reads the commit of a branch from Git repositories, by HTTP and ssh. Allowed addresses and credentials
// follow the same rules as downloads of packages (activities/source/download).
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/skeema/knownhosts"
	"golang.org/x/crypto/ssh"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/release/source"
)

const (
	service = "git-upload-pack"
	// advertisement is the media type of a list of references.
	advertisement = "application/x-" + service + "-advertisement"
	// maxListBytes limits a list of references: some 500,000 of them.
	maxListBytes = 64 << 20
)

// Access is the client and the key that reach a repository.
type Access struct {
	Client *download.Client
	// Key is the key for repositories by ssh; nil: there is none.
	Key *source.SSHKey
}

// Commit returns the commit that a branch of a repository points at. It fails with a *download.Error, whose Kind
// decides whether a retry is useful.
func (a Access) Commit(ctx context.Context, repository source.Repository, branch string) (string, error) {
	list := a.overHTTP
	if repository.SSH() {
		list = a.overSSH
	}
	refs, err := list(ctx, repository)
	if err != nil {
		return "", err
	}
	hash, found := refs.References[plumbing.NewBranchReferenceName(branch).String()]
	switch {
	case !found && len(refs.References) == 0:
		return "", refuse("the repository is empty: push branch %s first", branch)
	case !found:
		return "", refuse("the repository has no branch %s: push it, or correct compileRepoBranch", branch)
	}
	return hash.String(), nil
}

func refuse(format string, args ...any) error {
	return &download.Error{Kind: download.Refused, Message: fmt.Sprintf(format, args...)}
}

func temporary(format string, args ...any) error {
	return &download.Error{Kind: download.Temporary, Message: fmt.Sprintf(format, args...)}
}

func (a Access) overHTTP(ctx context.Context, repository source.Repository) (*packp.AdvRefs, error) {
	document, err := a.Client.Read(ctx, repository.URL+"/info/refs?service="+service, maxListBytes)
	if err != nil {
		return nil, err
	}
	if document.MediaType != advertisement {
		return nil, refuse("the server does not answer as a Git server does: check the address of the repository")
	}
	return decode(bytes.NewReader(document.Body))
}

// decode parses a list of references. An empty repository may send none at all.
func decode(from io.Reader) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	err := refs.Decode(from)
	var unexpected *packp.ErrUnexpectedData
	var line *pktline.ErrorLine
	switch {
	case errors.As(err, &line):
		return nil, refuse("the server refuses to list its branches: check the address of the repository, and that " +
			"the credentials may read it")
	case errors.Is(err, packp.ErrEmptyAdvRefs), errors.Is(err, packp.ErrEmptyInput):
		return packp.NewAdvRefs(), nil
	case errors.As(err, &unexpected):
		return nil, refuse("the server's list of branches can't be read: only repositories of Git's SHA-1 format are " +
			"supported")
	case err != nil:
		return nil, temporary("the server's list of branches ended too early")
	}
	return refs, nil
}

// Check returns an error if the credentials or the key do not fit a repository. It does not connect.
func (a Access) Check(repository source.Repository) error {
	if repository.SSH() {
		_, err := a.sshConfig(repository)
		return err
	}
	return a.Client.CheckCredentials(repository.URL)
}

// sshTimeout limits the complete exchange with an ssh server.
const sshTimeout = 30 * time.Second

// overSSH lists the references of a repository by ssh. The host key is checked against known_hosts before the private
// key is used.
func (a Access) overSSH(ctx context.Context, repository source.Repository) (*packp.AdvRefs, error) {
	config, err := a.sshConfig(repository)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, sshTimeout)
	defer cancel()
	connection, err := a.Client.Dial(limited, "tcp", repository.Address())
	if err != nil {
		return nil, a.Client.DialError(ctx, err)
	}
	defer connection.Close()
	stop := context.AfterFunc(limited, func() { _ = connection.Close() })
	defer stop()
	secured, channels, requests, err := ssh.NewClientConn(connection, repository.Address(), config)
	if err != nil {
		err = handshakeError(repository, err)
	} else {
		client := ssh.NewClient(secured, channels, requests)
		defer client.Close()
		var refs *packp.AdvRefs
		if refs, err = listReferences(client, repository); err == nil {
			return refs, nil
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case limited.Err() != nil:
		return nil, temporary("the ssh server did not answer within %s", sshTimeout)
	}
	return nil, err
}

// sshConfig returns the configuration for a repository's host, which accepts only host keys in known_hosts.
func (a Access) sshConfig(repository source.Repository) (*ssh.ClientConfig, error) {
	if a.Key == nil {
		return nil, refuse("a repository by ssh needs a key: name a Secret with ssh-privatekey and known_hosts by " +
			"build.credentials in the catalogue")
	}
	signer, err := ssh.ParsePrivateKey(a.Key.PrivateKey)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, refuse("the private key has a passphrase: put a key without one into the Secret")
	case err != nil:
		return nil, refuse("the private key in the Secret can't be read")
	}
	known, err := parseKnownHosts(a.Key.KnownHosts)
	if err != nil {
		return nil, err
	}
	algorithms := known.HostKeyAlgorithms(repository.Address())
	if len(algorithms) == 0 {
		return nil, refuse("known_hosts in the Secret has no key of host %s: add it, after you have compared it",
			repository.Address())
	}
	return &ssh.ClientConfig{User: repository.Login, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback:   known.HostKeyCallback(),
		HostKeyAlgorithms: algorithms, ClientVersion: "SSH-2.0-slipway"}, nil
}

// parseKnownHosts parses the lines of a known_hosts file. It writes a temporary file, because the library reads files
// only.
func parseKnownHosts(lines []byte) (*knownhosts.HostKeyDB, error) {
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

// handshakeError explains why an ssh handshake failed.
func handshakeError(repository source.Repository, err error) error {
	switch {
	case knownhosts.IsHostKeyChanged(err):
		return refuse("host %s shows another key than known_hosts in the Secret has: find out why before you change it",
			repository.Address())
	case knownhosts.IsHostUnknown(err):
		return refuse("known_hosts in the Secret has no key of host %s", repository.Address())
	case strings.Contains(err.Error(), "unable to authenticate"): // the library has no type for this error
		return refuse("host %s does not accept the key of user %s: check the Secret, and that the key may read the "+
			"repository", repository.Address(), repository.Login)
	case strings.Contains(err.Error(), "no common algorithm"):
		return refuse(
			"host %s has no key of a kind that known_hosts in the Secret has, or no other algorithm in common",
			repository.Address())
	}
	return temporary("the ssh handshake with %s failed", repository.Address())
}

// listReferences runs git-upload-pack, reads the references, and ends the session.
func listReferences(client *ssh.Client, repository source.Repository) (*packp.AdvRefs, error) {
	session, err := client.NewSession()
	if err != nil {
		return nil, temporary("the ssh server refused to open a session")
	}
	defer session.Close()
	in, errIn := session.StdinPipe()
	out, errOut := session.StdoutPipe()
	stderr := &prefixBuffer{}
	session.Stderr = stderr
	if err := errors.Join(errIn, errOut, session.Start(service+" "+shellQuoted(repository.Path))); err != nil {
		return nil, temporary("the ssh server refused to run a command")
	}
	refs, err := decode(io.LimitReader(out, maxListBytes))
	_, _ = io.WriteString(in, "0000") // a flush packet: no object is requested
	_ = in.Close()
	if err != nil || len(refs.References) == 0 {
		var failed *ssh.ExitError
		switch ended := session.Wait(); {
		case errors.As(ended, &failed):
			return nil, refuse("the ssh server does not serve this repository: check its path, and that the key may "+
				"read it%s", stderr.clause())
		case ended != nil:
			return nil, temporary("the ssh server ended the connection")
		}
	}
	return refs, err
}

// shellQuoted quotes a path as one word of the command that an ssh server runs, as Git itself does.
func shellQuoted(path string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
}

// prefixBuffer keeps the first 300 bytes of the server's stderr.
type prefixBuffer struct{ text []byte }

func (b *prefixBuffer) Write(text []byte) (int, error) {
	b.text = append(b.text, text[:min(len(text), 300-len(b.text))]...)
	return len(text), nil
}

func (b *prefixBuffer) clause() string {
	text := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(string(b.text), ""), func(r rune) bool {
		return r < ' ' || r == 0x7f
	}), " ")
	if text == "" {
		return ""
	}
	return " (it says: " + text + ")"
}
