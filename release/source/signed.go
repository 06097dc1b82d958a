package source

import (
	"net/url"
	"slices"
	"strings"
)

// secretParameters are the parameters of queries that open a source, in lower case: those of presigned URLs (Amazon S3,
// Google Cloud Storage, Azure, Alibaba OSS, Tencent COS, CloudFront) and those that hold a token.
var secretParameters = []string{
	"x-amz-signature", "x-amz-security-token", "x-goog-signature", "x-oss-signature", "x-oss-security-token",
	"q-signature", "x-cos-security-token", "signature", "sign", "sig",
	"token", "access_token", "private_token", "auth_token", "job_token", "sas_token", "security-token",
	"api_key", "apikey", "api-key", "password", "passwd", "secret",
}

// SecretParameter returns the first parameter of a URL's query that looks like a signature or a token, in lower case;
// "" if none does.
func SecretParameter(rawURL string) string {
	_, query, _ := strings.Cut(rawURL, "?")
	query, _, _ = strings.Cut(query, "#")
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if name = strings.ToLower(name); value != "" && slices.Contains(secretParameters, name) {
			return name
		}
	}
	return ""
}
