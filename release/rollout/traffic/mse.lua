-- Annotations of MSE gateways: those of ingress-nginx, one query parameter, headers that requests to the new version get, and the subset of tagged pods.
local nginx, mse = "nginx.ingress.kubernetes.io/", "mse.ingress.kubernetes.io/"
local annotations = obj.annotations

-- A gateway reads either prefix, so both are cleared.
for _, prefix in ipairs({ nginx, mse }) do
  for _, key in ipairs({
    "canary", "canary-by-cookie", "canary-by-header", "canary-by-header-pattern", "canary-by-header-value",
    "canary-by-query", "canary-by-query-pattern", "canary-by-query-value", "canary-weight", "canary-weight-total",
  }) do
    annotations[prefix .. key] = nil
  end
end

local subset = annotations[mse .. "service-subset"] ~= nil
if subset then
  annotations[mse .. "service-subset"] = "gray"
end
local modifier = obj.requestHeaderModifier
if obj.stableService == obj.canaryService and not subset and not modifier then
  refuse("", "without a canary Service class mse needs the annotation " .. mse .. "service-subset on the Ingress, or a requestHeaderModifier")
end

annotations[nginx .. "canary"] = "true"
if obj.weight ~= "-1" then
  annotations[nginx .. "canary-weight"] = obj.weight
end

-- The headers of one operation are written one per line: "name value".
local function lines(headers, field)
  local out = {}
  for i, header in ipairs(headers or {}) do
    if string.find(header.value, "\n", 1, true) then
      refuse("requestHeaderModifier." .. field .. "[" .. (i - 1) .. "].value", "class mse cannot set a value of several lines")
    end
    out[#out + 1] = header.name .. " " .. header.value
  end
  return table.concat(out, "\n")
end

if modifier then
  for field, key in pairs({ set = "request-header-control-update", add = "request-header-control-add" }) do
    if modifier[field] and #modifier[field] > 0 then
      annotations[mse .. key] = lines(modifier[field], field)
    end
  end
  if modifier.remove and #modifier.remove > 0 then
    annotations[mse .. "request-header-control-remove"] = table.concat(modifier.remove, ",")
  end
end

local asked = {}
local function once(kind, here)
  if asked[kind] then
    refuse(here, "class mse compares one " .. kind .. " only: one match each by header, by query parameter and by cookie can be asked for")
  end
  asked[kind] = true
end

for i, match in ipairs(obj.matches or {}) do
  local here = "matches[" .. (i - 1) .. "]"
  if match.path then
    refuse(here .. ".path", "class mse cannot match by path")
  end
  local headers, query = match.headers or {}, match.queryParams or {}
  if #headers + #query ~= 1 then
    refuse(here, "class mse compares exactly one header or one query parameter in a match")
  end
  local wanted = headers[1] or query[1]
  local field = #headers == 1 and ".headers[0]" or ".queryParams[0]"
  local regular = wanted.type == "RegularExpression"
  if not wanted.value or wanted.value == "" then
    refuse(here .. field .. ".value", "class mse cannot ask for an empty value")
  end
  if #query == 1 then
    once("query parameter", here)
    if regular then
      refuse(here .. field .. ".type", "class mse compares a query parameter exactly")
    end
    annotations[mse .. "canary-by-query"] = wanted.name
    annotations[mse .. "canary-by-query-value"] = wanted.value
  elseif wanted.name == "canary-by-cookie" then
    once("cookie", here)
    if regular then
      refuse(here .. field .. ".type", "class mse compares a cookie's name exactly")
    end
    annotations[nginx .. "canary-by-cookie"] = wanted.value
  else
    once("header", here)
    annotations[nginx .. "canary-by-header"] = wanted.name
    annotations[nginx .. (regular and "canary-by-header-pattern" or "canary-by-header-value")] = wanted.value
  end
end

return annotations
