package git_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"io"
	"net"
	"os/exec"
	"testing"

	"github.com/skeema/knownhosts"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"slipway.io/slipway/activities/source/download"
	"slipway.io/slipway/release/source"
)

// signer is a key pair, in the forms that a server and a client need.
type signer struct {
	ssh.Signer
	pem []byte
}

func newSigner(t *testing.T) signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(private, "")
	require.NoError(t, err)
	made, err := ssh.NewSignerFromKey(private)
	require.NoError(t, err)
	return signer{made, pem.EncodeToMemory(block)}
}

// newKey returns the key of a client whose known_hosts has one host.
func newKey(t *testing.T, address string, client, host signer) *source.SSHKey {
	t.Helper()
	return &source.SSHKey{PrivateKey: client.pem, KnownHosts: []byte(
		knownhosts.Line([]string{address}, host.PublicKey()))}
}

// sshServer serves repositories in a folder of this machine: it runs the commands that a Git client sends.
type sshServer struct {
	address string
	host    signer
}

// newSSHServer starts a server that accepts one client key.
func newSSHServer(t *testing.T, client ssh.PublicKey) *sshServer {
	t.Helper()
	s := &sshServer{host: newSigner(t)}
	config := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions,
		error) {
		if c.User() != "git" || string(key.Marshal()) != string(client.Marshal()) {
			return nil, io.EOF
		}
		return &ssh.Permissions{}, nil
	}}
	config.AddHostKey(s.host)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	s.address = listener.Addr().String()
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go serveSSH(connection, config)
		}
	}()
	return s
}

func serveSSH(connection net.Conn, config *ssh.ServerConfig) {
	_, channels, requests, err := ssh.NewServerConn(connection, config)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for offered := range channels {
		channel, requests, err := offered.Accept()
		if err != nil {
			return
		}
		for request := range requests {
			var command struct{ Text string }
			if request.Type != "exec" || ssh.Unmarshal(request.Payload, &command) != nil {
				_ = request.Reply(false, nil)
				continue
			}
			_ = request.Reply(true, nil)
			go runOver(channel, command.Text)
		}
	}
}

// runOver runs a command by a shell, as sshd does.
func runOver(channel ssh.Channel, command string) {
	cmd := exec.Command("/bin/sh", "-c", command)
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	in, err := cmd.StdinPipe()
	if err != nil {
		return
	}
	go func() { // the command may end before its input does
		_, _ = io.Copy(in, channel)
		_ = in.Close()
	}()
	status := uint32(0)
	if err := cmd.Run(); err != nil {
		status = 128
	}
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
	_ = channel.Close()
}

// gitIn runs Git in a folder.
func gitIn(t *testing.T, folder string, args ...string) {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-C", folder},
		args...)...)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
}

func TestCommitOverSSH(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git on this machine")
	}
	folder := t.TempDir() + "/it's $(touch here)!"
	gitIn(t, "/", "init", "--quiet", "--initial-branch=main", folder)
	client := newSigner(t)
	server := newSSHServer(t, client.PublicKey())
	at := source.Repository{Login: "git", Host: "127.0.0.1", Port: portOf(t, server.address), Path: folder}
	opened := access(t, "127.0.0.0/8", nil)
	opened.Key = newKey(t, server.address, client, server.host)

	_, err := opened.Commit(t.Context(), at, "main")
	requireKind(t, err, download.Refused, "the repository is empty")
	gitIn(t, folder, "commit", "--quiet", "--allow-empty", "--message", "first")
	want, err := exec.Command("git", "-C", folder, "rev-parse", "HEAD").Output()
	require.NoError(t, err)
	got, err := opened.Commit(t.Context(), at, "main")
	require.NoError(t, err)
	require.Equal(t, string(want), got+"\n", "special characters in a path are quoted")
	require.NoError(t, opened.Check(at))
	_, err = opened.Commit(t.Context(), at, "next")
	requireKind(t, err, download.Refused, "has no branch next")
	missing := at
	missing.Path = "/no/such"
	_, err = opened.Commit(t.Context(), missing, "main")
	requireKind(t, err, download.Refused, "does not serve this repository: check its path")

	t.Run("WrongKnownHosts", func(t *testing.T) {
		opened.Key = newKey(t, server.address, client, newSigner(t))
		_, err := opened.Commit(t.Context(), at, "main")
		requireKind(t, err, download.Refused, "shows another key than known_hosts")
	})
	t.Run("UnknownHost", func(t *testing.T) {
		opened.Key = newKey(t, "git.test", client, server.host)
		_, err := opened.Commit(t.Context(), at, "main")
		requireKind(t, err, download.Refused, "known_hosts in the Secret has no key of host 127.0.0.1")
		require.Error(t, opened.Check(at), "Check finds it without connecting")
	})
	t.Run("WrongKey", func(t *testing.T) {
		opened.Key = newKey(t, server.address, newSigner(t), server.host)
		_, err := opened.Commit(t.Context(), at, "main")
		requireKind(t, err, download.Refused, "does not accept the key of user git")
	})
	t.Run("NoKey", func(t *testing.T) {
		opened.Key = nil
		_, err := opened.Commit(t.Context(), at, "main")
		requireKind(t, err, download.Refused, "name a Secret with ssh-privatekey and known_hosts")
		opened.Key = &source.SSHKey{PrivateKey: []byte("s3cr3t"), KnownHosts: []byte("x")}
		_, err = opened.Commit(t.Context(), at, "main")
		requireKind(t, err, download.Refused, "the private key in the Secret can't be read")
		opened.Key = &source.SSHKey{PrivateKey: client.pem, KnownHosts: []byte("git.test ssh-ed25519 nonsense")}
		_, err = opened.Commit(t.Context(), at, "main")
		requireKind(t, err, download.Refused, "known_hosts in the Secret can't be read")
	})
}

func portOf(t *testing.T, address string) uint16 {
	t.Helper()
	at, err := net.ResolveTCPAddr("tcp", address)
	require.NoError(t, err)
	return uint16(at.Port)
}
