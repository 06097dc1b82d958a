package main

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// event is one server-sent event.
type event struct {
	// name is the event's type, "message" when it has none.
	name string
	// id is the last ID that the stream has set.
	id   string
	data []byte
}

// readEvents reads server-sent events until the stream ends, which is no error, or the receiver returns one.
// The format is that of the HTML standard; lines end with LF or CRLF. An event that the end of the stream cuts off is dropped.
func readEvents(stream io.Reader, receive func(event) error) error {
	reader := bufio.NewReaderSize(stream, 64<<10)
	current, lastID := event{}, ""
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
				current.id, current.data = lastID, bytes.Join(data, []byte("\n"))
				if current.name == "" {
					current.name = "message"
				}
				if err := receive(current); err != nil {
					return err
				}
			}
			current, data = event{}, nil
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			current.name = string(value)
		case "data":
			data = append(data, value)
		case "id":
			if id := string(value); !strings.ContainsRune(id, 0) {
				lastID = id
			}
		}
	}
}
