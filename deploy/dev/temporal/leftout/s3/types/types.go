// Package types has the types of S3 that Temporal's server names.
package types

type (
	CommonPrefix struct{ Prefix *string }
	Object       struct{ Key *string }

	NoSuchBucket struct{}
	NoSuchKey    struct{}
)

func (*NoSuchBucket) Error() string { return "no such bucket" }
func (*NoSuchKey) Error() string    { return "no such key" }
