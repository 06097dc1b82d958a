// Package git asks Git repositories, by HTTP and ssh, which commit a branch is at. What may be connected to, and who sees credentials, is held
// against the same rules as downloads of packages (activities/source/download).
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
	// longestList bounds a list of references: some 500,000 of them.
	longestList = 64 << 20
)

// Access is how a repository is reached.
type Access struct {
	Client *download.Client
	// Key opens repositories by ssh; nil: there is none.
	Key *source.SSHKey
}

// Commit is the commit that a branch of a repository is at. It fails with a *download.Error, which says whether it is worth another try.
func (a Access) Commit(ctx context.Context, repository source.Repository, branch string) (string, error) {
	list := a.overHTTP
	if repository.SSH() {
		list = a.overSSH
	}
	refs, err := list(ctx, repository)
	if err != nil {
		return "", err
	}
	hash, there := refs.References[plumbing.NewBranchReferenceName(branch).String()]
	switch {
	case !there && len(refs.References) == 0:
		return "", refuse("the repository is empty: push branch %s first", branch)
	case !there:
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
	document, err := a.Client.Read(ctx, repository.URL+"/info/refs?service="+service, longestList)
	if err != nil {
		return nil, err
	}
	if document.MediaType != advertisement {
		return nil, refuse("the server does not answer as a Git server does: check the address of the repository")
	}
	return decode(bytes.NewReader(document.Body))
}

// decode reads a list of references. An empty one is that of an empty repository.
func decode(from io.Reader) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	err := refs.Decode(from)
	var unexpected *packp.ErrUnexpectedData
	var told *pktline.ErrorLine
	switch {
	case errors.As(err, &told):
		return nil, refuse("the server refuses to list its branches: check the address of the repository, and that the credentials may read it")
	case errors.Is(err, packp.ErrEmptyAdvRefs), errors.Is(err, packp.ErrEmptyInput):
		return packp.NewAdvRefs(), nil
	case errors.As(err, &unexpected):
		return nil, refuse("the server's list of branches can't be read: only repositories of Git's SHA-1 format are supported")
	case err != nil:
		return nil, temporary("the server's list of branches ended too early")
	}
	return refs, nil
}

// Check says what is wrong with how a repository would be reached, as far as that is known without asking it.
func (a Access) Check(repository source.Repository) error {
	if repository.SSH() {
		_, err := a.config(repository)
		return err
	}
	return a.Client.WouldTell(repository.URL)
}
