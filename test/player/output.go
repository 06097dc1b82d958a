package player

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// What is kept of the output of a container, and of its end for a termination message, in bytes and lines: the latter as Kubernetes does.
const (
	longestOutput       = 4 << 20
	longestTail         = 2048
	longestTailInLines  = 80
	outputIsCutFromHere = "\n… more than the player keeps\n"
)

// output is what a container writes, in a file.
type output struct {
	path string

	mu      sync.Mutex
	written int
	// last is the end of what the present run has written.
	last []byte
}

// output is that of a container of a pod of that name.
func (p *Player) output(pod, container string) *output {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := filepath.Join("logs", pod, container)
	if p.logs[key] == nil {
		p.logs[key] = &output{path: filepath.Join(p.folder, key)}
	}
	return p.logs[key]
}

// begin begins another run.
func (o *output) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = nil
}

// Write never fails, so that a container never ends because of what it writes.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, text...)
	o.last = append([]byte(nil), o.last[max(0, len(o.last)-longestTail):]...)
	keep := text[:min(len(text), longestOutput-o.written)]
	o.written += len(keep)
	if len(keep) > 0 && o.written == longestOutput {
		keep = append(keep[:len(keep):len(keep)], outputIsCutFromHere...)
	}
	o.keep(keep)
	return len(text), nil
}

func (o *output) keep(text []byte) {
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
	lines := strings.SplitAfter(string(o.last), "\n")
	return strings.Join(lines[max(0, len(lines)-1-longestTailInLines):], "")
}
