package follow

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// Event is one server-sent event.
type Event struct {
	// Name is the event's type, "message" when it has none.
	Name string
	// Id is the last ID that the stream has set.
	ID   string
	Data []byte
}

// ReadEvents reads server-sent events until the stream ends, which is no error, or the receiver returns one.
// The format is that of the HTML standard; lines end with LF or CRLF. An event that the end of the stream cuts off is dropped.
func ReadEvents(stream io.Reader, receive func(Event) error) error {
	reader := bufio.NewReaderSize(stream, 64<<10)
	current, lastID := Event{}, ""
	var data [][]byte
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if len(data) > 0 {
				current.ID, current.Data = lastID, bytes.Join(data, []byte("\n"))
				if current.Name == "" {
					current.Name = "message"
				}
				if err := receive(current); err != nil {
					return err
				}
			}
			current, data = Event{}, nil
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			current.Name = string(value)
		case "data":
			data = append(data, value)
		case "id":
			if id := string(value); !strings.ContainsRune(id, 0) {
				lastID = id
			}
		}
	}
}
