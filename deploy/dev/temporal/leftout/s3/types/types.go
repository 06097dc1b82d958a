// Package types has the S3 types that Temporal's server uses.
package types

type (
	CommonPrefix struct{ Prefix *string }
	Object       struct{ Key *string }

	NoSuchBucket struct{}
	NoSuchKey    struct{}
)

func (*NoSuchBucket) Error() string { return "no such bucket" }
func (*NoSuchKey) Error() string    { return "no such key" }
