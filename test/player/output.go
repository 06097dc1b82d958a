package player

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// The limits of a container's stored output and, as in Kubernetes, of its end in a termination message.
const (
	maxOutputBytes = 4 << 20
	maxTailBytes   = 2048
	maxTailLines   = 80
	truncationNote = "\n… more than the player keeps\n"
)

// output stores the output of a container in a file.
type output struct {
	path string

	mu      sync.Mutex
	written int
	// lastBytes is the end of the output of the present run.
	lastBytes []byte
}

// output returns the output of a container by pod name.
func (p *Player) output(pod, container string) *output {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := filepath.Join("logs", pod, container)
	if p.logs[key] == nil {
		p.logs[key] = &output{path: filepath.Join(p.folder, key)}
	}
	return p.logs[key]
}

// begin marks the start of another run.
func (o *output) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastBytes = nil
}

// Write never fails, so that a container never ends because of its output.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lastBytes = append(o.lastBytes, text...)
	o.lastBytes = append([]byte(nil), o.lastBytes[max(0, len(o.lastBytes)-maxTailBytes):]...)
	keep := text[:min(len(text), maxOutputBytes-o.written)]
	o.written += len(keep)
	if len(keep) > 0 && o.written == maxOutputBytes {
		keep = append(keep[:len(keep):len(keep)], truncationNote...)
	}
	o.appendFile(keep)
	return len(text), nil
}

func (o *output) appendFile(text []byte) {
	if len(text) == 0 || os.MkdirAll(filepath.Dir(o.path), 0o700) != nil {
		return
	}
	file, err := os.OpenFile(o.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = file.Write(text)
	_ = file.Close()
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	lines := strings.SplitAfter(string(o.lastBytes), "\n")
	return strings.Join(lines[max(0, len(lines)-1-maxTailLines):], "")
}
