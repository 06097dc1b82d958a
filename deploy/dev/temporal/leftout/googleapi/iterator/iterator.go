// Package iterator has the error with which iterators of Google's clients end.
package iterator

import "errors"

// Done is returned after the last item.
var Done = errors.New("no more items in iterator")
