// Package git reads the commit of a branch from Git repositories, by HTTP and ssh. Allowed addresses and credentials
// follow the same rules as downloads of packages (activities/source/download).
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"

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
