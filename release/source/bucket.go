package source

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// bucketName matches the bucket names that Amazon S3 accepts
// (https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html).
var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)

// ParseBucket parses the address of a bucket or of a part of one: s3://name or s3://name/prefix. The prefix is empty or
// ends with a slash.
func ParseBucket(text string) (name, prefix string, err error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", "", fmt.Errorf("%q is not a bucket: give s3://name or s3://name/prefix", text)
	}
	if !bucketName.MatchString(u.Host) {
		return "", "", fmt.Errorf("%q is not a bucket name: use 3 to 63 lower-case letters, digits, dots and hyphens",
			u.Host)
	}
	if prefix = strings.Trim(u.Path, "/"); prefix == "" {
		return u.Host, "", nil
	}
	if path.Clean("/"+prefix) != "/"+prefix {
		return "", "", fmt.Errorf("%q is not a prefix in a bucket: leave out empty parts and dots", u.Path)
	}
	return u.Host, prefix + "/", nil
}
