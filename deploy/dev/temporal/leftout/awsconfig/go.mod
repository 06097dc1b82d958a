module github.com/aws/aws-sdk-go-v2/config

go 1.26.8

require github.com/aws/aws-sdk-go-v2 v1.43.4
